"""Rules about where the weights come from."""

from typing import Any

import pytest

from dpd.finding import Level
from tests.checks.cases import CLOSED, Case, source
from tests.checks.test_lustre import ADOPTED as ADOPTED_LUSTRE
from tests.support import REMOVE, findings

PATH = "endpoints[0].model.source"
TOKEN = {"secret": "hub", "key": "token"}


def hub(model_id: str = "meta-llama/Llama-3.3-70B-Instruct", **values: Any) -> dict[str, Any]:
    return source("hub", {"model_id": model_id, "revision": "a" * 40, **values})


def lustre(path: str) -> dict[str, Any]:
    return source("lustre", {"path": path})


def on_nvme(instance_type: str = "ml.p5.48xlarge") -> dict[str, Any]:
    return {**source("volume", {"host_path": "/opt/dlami/nvme/llama"}), "cluster.groups.prefill.instance_type": instance_type}


QWEN = {"endpoints[0].model.catalog": "qwen3-32b"}
CASES = [
    Case(
        "SRC001", {"storage.lustre": REMOVE, **lustre("/checkpoints/a")}, f"{PATH}.lustre", "add storage.lustre", lustre("/checkpoints/a")
    ),
    Case("SRC002", lustre("/models/a"), f"{PATH}.lustre.path", "below the link /checkpoints", lustre("/checkpoints/a"), Level.WARNING),
    Case(
        "SRC002", lustre("/checkpoints-old/a"), f"{PATH}.lustre.path", "move it below /checkpoints", lustre("/checkpoints"), Level.WARNING
    ),
    Case(
        "SRC002",
        {"storage.lustre.link": REMOVE, **lustre("/a")},
        f"{PATH}.lustre.path",
        "add storage.lustre.link",
        {**ADOPTED_LUSTRE, **lustre("/a")},
        Level.WARNING,
    ),
    *(
        Case("SRC003", {**changes, field: wrong}, field, "write the path as it is", {**changes, field: right})
        for changes, field, wrong, right in [
            ({}, f"{PATH}.s3.prefix", "models/../x/", "models/x/"),
            ({}, f"{PATH}.s3.prefix", "./x", "x"),
            ({}, "storage.lustre.link.path", "/.", "/x"),
            ({}, "storage.lustre.link.prefix", "a/..", "a"),
            (lustre("/a"), f"{PATH}.lustre.path", "/checkpoints/../x", "/checkpoints/x"),
            (source("volume", {"claim": "c", "path": "a"}), f"{PATH}.volume.path", "a/./b", "a/b"),
            (on_nvme(), f"{PATH}.volume.host_path", "/opt/dlami/nvme/../x", "/opt/dlami/nvme/x"),
        ]
    ),
    *(
        Case("SRC004", {f"{PATH}.s3.prefix": wrong}, f"{PATH}.s3.prefix", "ends like a file", {f"{PATH}.s3.prefix": "llama/"})
        for wrong in ("llama/model.safetensors", "llama/config.json", "llama.tar.gz", "llama/model.GGUF/")
    ),
    Case("SRC005", hub(), f"{PATH}.hub.token", "meta-llama/Llama-3.3-70B-Instruct is gated", hub(token=TOKEN)),
    # the repository is gated, whatever the arithmetic is about
    Case("SRC005", {**QWEN, **hub()}, f"{PATH}.hub.token", "gated", {**QWEN, **hub("Qwen/Qwen3-32B")}),
    Case("SRC006", {**CLOSED, **hub(token=TOKEN)}, f"{PATH}.hub", "make a NAT gateway", hub(token=TOKEN)),
    Case(
        "SRC006",
        {**hub(token=TOKEN), "endpoints[0].environment": {"HF_HUB_OFFLINE": "1"}},
        "endpoints[0].environment.HF_HUB_OFFLINE",
        "keeps the pods from downloading",
        {**hub(token=TOKEN), "endpoints[0].environment": {"HF_HUB_OFFLINE": "0"}},
    ),
    Case("SRC007", hub(token=TOKEN), f"{PATH}.hub", "2 pods x 131 GiB = 263 GiB", level=Level.WARNING),
    Case(
        "SRC008",
        {**QWEN, **hub("Qwen/Qwen3-8B")},
        f"{PATH}.hub.model_id",
        "Qwen/Qwen3-32B",
        {**QWEN, **hub("Qwen/Qwen3-32B")},
        Level.WARNING,
    ),
    Case("SRC009", on_nvme("ml.g4dn.xlarge"), f"{PATH}.volume.host_path", "125 GB of instance store", on_nvme()),
    Case("SRC009", on_nvme("ml.c5.4xlarge"), f"{PATH}.volume.host_path", "has 0 GB", on_nvme()),
    Case(
        "SRC010",
        on_nvme(),
        f"{PATH}.volume.host_path",
        "node recovery makes new ones",
        source("volume", {"claim": "weights"}),
        Level.WARNING,
    ),
    Case(
        "SRC011",
        source("volume", {"claim": "weights"}),
        f"{PATH}.volume.claim",
        "kubectl get pvc weights -n inference",
        on_nvme(),
        Level.INFO,
    ),
]


@pytest.mark.parametrize("case", CASES, ids=lambda case: f"{case} {case.says}")
def test_smallest_wrong_and_nearest_right(case: Case) -> None:
    case.verify()


def test_the_shipped_source_is_right() -> None:
    assert not [one for one in findings() if one.id.startswith("SRC")]
