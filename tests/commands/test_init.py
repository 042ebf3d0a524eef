"""``dpd init``: what it writes passes the checks, and what it cannot write it explains."""

import json
from itertools import product
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from commands.starter import Answers, text
from dpd.catalog import instances, models, regions
from dpd.checks.registry import Context, run
from dpd.environment.load import load, load_text
from dpd.sizing.memory import GIB
from dpd.sizing.starter import first_layout
from tests.commands.support import Dpd, in_terminal
from tests.environment.test_huggingface import LLAMA
from tests.support import TODAY

TYPES = instances.operator_dpd_types()
FULL = {"--model": "llama-3.3-70b-instruct", "--instance-type": "ml.p5.48xlarge", "--az-id": "use2-az1", "--account": "111122223333"}


def options(**changes: str | None) -> list[str]:
    """All options that are needed, with some changed or left out."""
    chosen = {**FULL, **{f"--{key.replace('_', '-')}": value for key, value in changes.items()}}
    return [part for key, value in chosen.items() if value is not None for part in (key, value)]


@pytest.fixture(autouse=True)
def _elsewhere(dpd: Dpd, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:  # noqa: ARG001 - after the fixture that goes home
    monkeypatch.chdir(tmp_path)


@pytest.mark.parametrize(("model", "instance_type"), [*product(models.names(), TYPES)])
def test_every_model_on_every_type_passes_the_checks_or_is_refused_with_the_sum(dpd: Dpd, model: str, instance_type: str) -> None:
    outcome = dpd("init", *options(model=model, instance_type=instance_type))
    file = Path("environments/dev.yaml")
    shape, instance = models.find(model), instances.find(instance_type)
    assert shape is not None
    assert instance is not None
    if outcome.code == 0:
        loaded = load(file)
        assert loaded.environment is not None
        assert [finding for finding in run(loaded.environment, Context(today=TODAY)) if finding.stops] == []
        assert f"instance_type: {instance_type}" in file.read_text(encoding="utf-8")
        assert dpd("check", file).code == 0
    else:
        each = shape.weight_bytes / instance.gpus / GIB
        assert each > 0.75 * instance.gpu_memory_gib, "only what is too large for a node may be refused"
        assert "GiB of weights" in outcome.err
        assert not file.exists()


@pytest.mark.parametrize(
    "zone_prefix", sorted({region.zone_prefix for name in regions.operator_regions() if (region := regions.find(name))})
)
def test_the_region_follows_from_the_az_id(dpd: Dpd, zone_prefix: str) -> None:
    outcome = dpd("init", *options(az_id=f"{zone_prefix}-az1"))
    assert outcome.code == 0, outcome.err
    environment = load(Path("environments/dev.yaml")).environment
    assert environment is not None
    region = regions.find(environment.region)
    assert region is not None
    assert region.zone_prefix == zone_prefix
    zones = (f"{zone_prefix}-az1", *environment.network.control_plane_availability_zone_ids)
    assert len(set(zones)) == 3


def test_names_and_places_of_the_file(dpd: Dpd) -> None:
    assert dpd("init", *options(), "--name", "qa", "--app", "chat").code == 0
    assert dpd("init", *options(), "--output", "other/test.yaml", "--capacity", "spot").code == 0
    environment = load(Path("environments/qa.yaml")).environment
    assert environment is not None
    assert (environment.app, environment.name) == ("chat", "qa")
    assert "capacity: spot" in Path("other/test.yaml").read_text(encoding="utf-8")
    assert sorted(path.name for path in Path("environments").iterdir()) == ["qa.yaml"]


def test_the_same_answers_write_the_same_file(dpd: Dpd) -> None:
    dpd("init", *options(), "--output", "a/dev.yaml")
    dpd("init", *options(), "--output", "b/dev.yaml")
    assert Path("a/dev.yaml").read_bytes() == Path("b/dev.yaml").read_bytes()


def test_a_file_that_exists_is_only_overwritten_by_force(dpd: Dpd) -> None:
    file = Path("environments/dev.yaml")
    file.parent.mkdir()
    file.write_text("mine", encoding="utf-8")
    outcome = dpd("init", *options())
    assert outcome.code == 1
    assert "exists" in outcome.err
    assert file.read_text(encoding="utf-8") == "mine"
    assert dpd("init", *options(), "--force").code == 0
    assert load(file).environment is not None


def test_what_is_missing_is_said_at_once_when_nobody_can_answer(dpd: Dpd) -> None:
    outcome = dpd("init", "--account", "111122223333")
    assert outcome.code == 2
    assert all(option in outcome.err for option in ("--model (", "--instance-type (ml.p5.48xlarge", "--az-id ("))
    assert "--account" not in outcome.err
    assert not Path("environments").exists()


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        ({"model": "gpt-7"}, "is neither in the catalog"),
        ({"model": "missing.json"}, "is missing"),
        ({"model": "hf_" + "a1B2" * 8}, "(hidden)"),
        ({"instance_type": "ml.p9.48xlarge"}, "is not an instance type that is known here"),
        ({"instance_type": "ml.g5.48xlarge"}, "is not among the types that AWS names"),
        ({"instance_type": "p5.48xlarge"}, "is not an instance type"),
        ({"az_id": "us-east-2a"}, "is an AZ name"),
        ({"az_id": "dummy1a"}, "is a placeholder"),
        ({"az_id": "x"}, "must be an AZ id"),
        ({"account": "1234"}, "must be a 12-digit"),
        ({"account": "x" * 10_000}, "--account"),
        ({"name": "Dev"}, "must be a DNS label"),
        ({"name": "../dev"}, "must be a DNS label"),
        ({"app": "a: {b"}, "must be a DNS label"),
        ({"output": "environments/Dev.yaml"}, "must be a DNS label"),
        ({"output": "."}, "is a folder"),
        ({"output": "a.yaml", "name": "b"}, "differ"),
        ({"capacity": "reserved"}, "reserved"),
    ],
)
def test_a_wrong_answer_is_a_wrong_call(dpd: Dpd, tmp_path: Path, changes: dict[str, str], says: str) -> None:
    outcome = dpd("init", *options(**changes))
    assert (outcome.code, outcome.out) == (2, "")
    assert says in outcome.err
    assert list(tmp_path.iterdir()) == []


def test_an_az_id_of_no_known_region_is_refused(dpd: Dpd) -> None:
    outcome = dpd("init", *options(az_id="zzz9-az1"))
    assert outcome.code == 1
    assert "no Region that is known here has the AZ id zzz9-az1" in outcome.err


def test_what_the_checks_refuse_is_not_written(dpd: Dpd, tmp_path: Path) -> None:
    outcome = dpd("init", *options(), "--app", "a" * 60)
    assert outcome.code == 1
    assert "was not written" in outcome.err
    assert "NAM" in outcome.err
    assert list(tmp_path.iterdir()) == []


def config(folder: Path, **changes: Any) -> Path:
    file = folder / "My Model!" / "config.json"
    file.parent.mkdir(exist_ok=True)
    file.write_text(json.dumps({**LLAMA, **changes}), encoding="utf-8")
    return file


@pytest.mark.parametrize(
    ("changes", "parallel"),
    [({}, 8), ({"num_attention_heads": 28, "num_key_value_heads": 4, "hidden_size": 3584}, 4), ({"max_position_embeddings": 512}, 8)],
)
def test_a_model_of_ones_own(dpd: Dpd, tmp_path: Path, changes: dict[str, Any], parallel: int) -> None:
    outcome = dpd("init", *options(model=str(config(tmp_path, **changes))))
    assert outcome.code == 0, outcome.err
    environment = load(Path("environments/dev.yaml")).environment
    assert environment is not None
    endpoint = environment.endpoints[0]
    assert endpoint.model.config == "../My Model!/config.json"
    assert endpoint.prefill.tensor_parallel == endpoint.decode.tensor_parallel == parallel


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        ({"num_hidden_layers": 800}, "GiB of weights"),
        ({"num_attention_heads": 7, "num_key_value_heads": 7}, "GiB on each of 1 GPUs"),
    ],
)
def test_a_model_that_cannot_fit_is_refused_with_the_sum(dpd: Dpd, tmp_path: Path, changes: dict[str, Any], says: str) -> None:
    outcome = dpd("init", *options(model=str(config(tmp_path, **changes))))
    assert outcome.code == 1
    assert says in outcome.err
    assert not Path("environments").exists()


def test_nothing_half_written_is_left_when_the_disk_refuses(dpd: Dpd, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object, **__: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(Path, "replace", refuse)
    outcome = dpd("init", *options())
    assert outcome.code == 3
    assert outcome.err == "Error: No space left on device\n"
    assert list(Path("environments").iterdir()) == []


def test_a_terminal_is_asked_until_the_answer_is_right(tmp_path: Path) -> None:
    arguments = ("init", *options(model=None, az_id=None), "--output", str(tmp_path / "dev.yaml"))
    shown = in_terminal(120, *arguments, typed="gpt-7\nqwen3-8b\nus-east-2a\nuse2-az1\n", CI="")
    assert "is neither in the catalog" in shown
    assert "is an AZ name" in shown
    assert load(tmp_path / "dev.yaml").environment is not None


def test_a_terminal_in_ci_is_not_asked(tmp_path: Path) -> None:
    shown = in_terminal(120, "init", *options(model=None), "--output", str(tmp_path / "dev.yaml"), CI="true")
    assert "Missing: --model" in shown


_whole = st.integers(1, 64)


@settings(max_examples=60)
@given(
    layers=st.integers(1, 130), heads=_whole, group=st.sampled_from([1, 2, 4, 8]), head_dim=st.sampled_from([64, 128, 256]),
    inner=st.integers(256, 60_000), positions=st.integers(16, 300_000), kind=st.sampled_from(TYPES),
)  # fmt: skip
def test_any_shape_passes_the_checks_or_is_refused(
    layers: int, heads: int, group: int, head_dim: int, inner: int, positions: int, kind: str
) -> None:
    from dpd.environment.huggingface import shape_of_config

    kv_heads = heads // group or 1
    shape = shape_of_config(
        {
            "num_hidden_layers": layers, "num_attention_heads": kv_heads * group, "num_key_value_heads": kv_heads, "vocab_size": 32_000,
            "hidden_size": kv_heads * group * head_dim, "head_dim": head_dim, "intermediate_size": inner,
            "max_position_embeddings": positions,
        },
        name="m",
    )  # fmt: skip
    instance = instances.find(kind)
    assert instance is not None
    try:
        layout = first_layout(shape, instance)
    except ValueError as error:
        said = str(error)
        assert "GiB" in said or "no number of GPUs" in said
        return
    answers = Answers(
        path=Path("environments/dev.yaml"), app="dpd", account="111122223333", zone="use2-az1", capacity="on_demand",
        model=shape, config=None, instance=instance,
    )  # fmt: skip
    content = text(answers, layout).replace("catalog: m", "catalog: llama-3.3-70b-instruct")
    environment = load_text(content, answers.path).environment
    assert environment is not None
    environment.endpoints[0].model._shape = shape
    assert [finding for finding in run(environment, Context(today=TODAY)) if finding.stops] == []
