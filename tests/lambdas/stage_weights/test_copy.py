"""The copy from end to end: a hub or a bucket on one side, S3 on the other, and what happens in between."""

import hashlib
import json
from typing import Any

import pytest
from stage_weights.copy import Broken, Copy
from stage_weights.progress import Progress
from stage_weights.record import record_key
from stage_weights.sources import Bucket, Refused, Source, source_of
from stage_weights.sources import Hub as HubSource

from dpd import staging
from tests.lambdas.stage_weights.conftest import BELONGS, PART, model
from tests.lambdas.stage_weights.hub import MODEL, REVISION, TOKEN, Hub

PREFIX = "Llama/"


def of(hub: Hub, token: str = "") -> HubSource:
    return HubSource(MODEL, REVISION, token=token, hub=hub.url)


def copy(s3: Any, source: Source, bucket: str = "models", prefix: str = PREFIX) -> None:
    Copy(s3, bucket, prefix, source, Progress(), part_bytes=PART, pause=0.001).run()


def objects(s3: Any, prefix: str = PREFIX, bucket: str = "models") -> dict[str, bytes]:
    listed = s3.list_objects_v2(Bucket=bucket, Prefix=prefix).get("Contents", ())
    return {one["Key"].removeprefix(prefix): s3.get_object(Bucket=bucket, Key=one["Key"])["Body"].read() for one in listed}


def record(s3: Any) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(s3.get_object(Bucket="models", Key=record_key(PREFIX))["Body"].read())
    return found


def unfinished(s3: Any) -> list[Any]:
    return list(s3.list_multipart_uploads(Bucket="models").get("Uploads", ()))


def test_a_model_from_the_hub(s3: Any, hub: Hub, capsys: pytest.CaptureFixture[str]) -> None:
    copy(s3, of(hub))
    assert objects(s3) == {path: content for path, content in hub.files.items() if path in BELONGS}
    found = record(s3)
    assert found["complete"] is True
    assert found["source"] == f"hub:{MODEL}@{REVISION}"
    assert {path: (one["size"], one["sha256"]) for path, one in found["files"].items()} == {
        path: (len(hub.files[path]), hashlib.sha256(hub.files[path]).hexdigest()) for path in BELONGS
    }
    assert not unfinished(s3)
    assert "every one with its SHA-256" in capsys.readouterr().out


def test_what_is_there_is_not_copied_again(s3: Any, hub: Hub) -> None:
    copy(s3, of(hub))
    hub.asked.clear()
    copy(s3, of(hub))
    # the index says which weights there are
    assert [path for path, _ in hub.asked] == ["model.safetensors.index.json"]
    assert record(s3)["complete"] is True


def test_what_was_changed_or_removed_is_copied_again(s3: Any, hub: Hub) -> None:
    copy(s3, of(hub))
    hub.asked.clear()
    s3.put_object(Bucket="models", Key=f"{PREFIX}config.json", Body=b'{"layers": 3}')
    s3.delete_object(Bucket="models", Key=f"{PREFIX}model-2.safetensors")
    copy(s3, of(hub))
    assert sorted(path for path, _ in hub.asked[1:]) == ["config.json", "model-2.safetensors"]
    assert objects(s3)["config.json"] == hub.files["config.json"]


def test_another_commit_is_another_copy(s3: Any, hub: Hub) -> None:
    copy(s3, of(hub))
    hub.files["config.json"] = b'{"layers": 4}'
    copy(s3, of(hub))
    assert objects(s3)["config.json"] == b'{"layers": 4}'


def test_a_connection_that_ends_goes_on_where_it_was(s3: Any, hub: Hub) -> None:
    hub.breaks = {"model-1.safetensors": [PART + 3, 1, 2 * 2**20], "config.json": [4]}
    copy(s3, of(hub))
    assert objects(s3)["model-1.safetensors"] == hub.files["model-1.safetensors"]
    ranges = [asked for path, asked in hub.asked if path == "model-1.safetensors"]
    assert ranges[0] == ""
    assert f"bytes={PART + 3}-" in ranges
    assert len(ranges) == 4
    assert not unfinished(s3)


def test_a_copy_that_broke_off_goes_on(s3: Any, hub: Hub) -> None:
    hub.breaks = {"model-1.safetensors": [2 * PART, *[0] * 20]}
    with pytest.raises(Broken, match=r"model-1\.safetensors cannot be read"):
        copy(s3, of(hub))
    found = record(s3)
    assert found["complete"] is False
    assert "model-1.safetensors" not in objects(s3)
    assert not unfinished(s3)
    hub.breaks.clear()
    hub.asked.clear()
    copy(s3, of(hub))
    again = {path for path, _ in hub.asked[1:]}
    assert again == BELONGS - found["files"].keys() - {"empty.txt"}
    assert "model-1.safetensors" in again
    assert objects(s3)["model-1.safetensors"] == hub.files["model-1.safetensors"]
    assert record(s3)["complete"] is True


@pytest.mark.parametrize("path", ["model-1.safetensors", "model-2.safetensors", "config.json"])
def test_wrong_bytes_are_copied_again_and_never_shown(s3: Any, hub: Hub, path: str) -> None:
    hub.wrong = {path: 1}
    copy(s3, of(hub))
    assert objects(s3)[path] == hub.files[path]
    hub.files[path] = hub.files[path][::-1]
    hub.wrong = {path: 2}
    before = objects(s3)[path]
    with pytest.raises(Broken, match="twice"):
        copy(s3, of(hub))
    assert objects(s3)[path] == before
    assert not unfinished(s3)
    assert record(s3)["complete"] is False


def test_a_server_that_does_not_go_on_in_the_middle(s3: Any, hub: Hub) -> None:
    hub.breaks, hub.ranges = {"model-1.safetensors": [PART]}, False
    with pytest.raises(Refused, match="does not go on"):
        copy(s3, of(hub))


def test_a_hub_that_is_busy_is_asked_again(s3: Any, hub: Hub) -> None:
    hub.errors = [429, 503, 500]
    copy(s3, of(hub))
    assert record(s3)["complete"] is True


def test_the_token_opens_a_gated_model_and_goes_to_the_hub_alone(s3: Any, hub: Hub) -> None:
    hub.gated = True
    copy(s3, of(hub, token=f"{TOKEN}\n"))
    assert hub.tokens == {"hub": {f"Bearer {TOKEN}"}, "storage": {""}}


@pytest.mark.parametrize(("token", "says"), [("", "there is no token"), ("another", "has not accepted")])
def test_a_gated_model_without_its_token(s3: Any, hub: Hub, token: str, says: str) -> None:
    hub.gated = True
    with pytest.raises(Refused, match=says) as error:
        copy(s3, of(hub, token=token))
    assert "another" not in str(error.value)
    assert not objects(s3)


def test_a_repository_that_is_not_there(s3: Any, hub: Hub) -> None:
    with pytest.raises(Refused, match="has no owner/other"):
        copy(s3, HubSource("owner/other", REVISION, hub=hub.url))


@pytest.mark.parametrize(
    ("files", "says"),
    [
        ({"config.json": b"{}", "model.bin": b"x"}, "no safetensors"),
        ({"model.safetensors.index.json": b"not json", "model-1.safetensors": b"x"}, "cannot be read"),
        ({"model.safetensors.index.json": b"{}", "model-1.safetensors": b"x"}, "cannot be read"),
        ({"model.safetensors.index.json": b'{"weight_map": {}}', "model-1.safetensors": b"x"}, "cannot be read"),
        ({"model.safetensors.index.json": b'{"weight_map": {"a": "b.safetensors"}}', "model-1.safetensors": b"x"}, "does not have"),
        (
            {
                "model.safetensors.index.json": b'{"weight_map": {"a": "m.safetensors"}, "metadata": {"total_size": 9}}',
                "m.safetensors": b"x",
            },
            "the index speaks of 9",
        ),
    ],
)
def test_a_repository_that_is_no_model(s3: Any, hub: Hub, files: dict[str, bytes], says: str) -> None:
    hub.files = files
    with pytest.raises(Refused, match=says):
        copy(s3, of(hub))


def test_weights_without_an_index(s3: Any, hub: Hub) -> None:
    hub.files = {"config.json": b"{}", "model.safetensors": b"weights"}
    copy(s3, of(hub))
    assert objects(s3) == hub.files


def test_a_folder_of_another_bucket(s3: Any) -> None:
    files = {path: content for path, content in model().items() if path in BELONGS}
    for path, content in files.items():
        given = {"ChecksumAlgorithm": "SHA256"} if path == "model-2.safetensors" else {}
        s3.put_object(Bucket="elsewhere", Key=f"llama/{path}", Body=content, **given)
    s3.put_object(Bucket="elsewhere", Key="llama-2/config.json", Body=b"another")
    source = Bucket(s3, "elsewhere", "llama")
    stated = {file.path: file.digest for file in source.files()}
    assert stated["model-2.safetensors"] == f"sha256:{hashlib.sha256(files['model-2.safetensors']).hexdigest()}"
    copy(s3, source)
    assert objects(s3) == files
    assert record(s3)["source"] == "s3://elsewhere/llama/"


def test_an_object_that_changes_under_the_copy(s3: Any) -> None:
    s3.put_object(Bucket="elsewhere", Key="llama/model.safetensors", Body=b"first")
    source = Bucket(s3, "elsewhere", "llama/")
    (file,) = source.files()
    s3.put_object(Bucket="elsewhere", Key="llama/model.safetensors", Body=b"other")
    with pytest.raises(s3.exceptions.ClientError, match=r"PreconditionFailed|412"):
        list(source.read(file, 0, 10))


@pytest.mark.parametrize("damage", [b"", b"{", b"[]", b'{"version": 2}', b'{"version": 1, "source": "x", "files": []}'])
def test_a_record_that_cannot_be_read_is_none(s3: Any, hub: Hub, damage: bytes) -> None:
    s3.put_object(Bucket="models", Key=record_key(PREFIX), Body=damage)
    copy(s3, of(hub))
    assert record(s3)["complete"] is True


def test_the_record_is_where_the_preflight_looks() -> None:
    for prefix in ("a/", "a", "/a/b/", "Llama-3.3-70B-Instruct/"):
        assert record_key(prefix) == staging.record_key(prefix)


@pytest.mark.parametrize("text", ["", "hub:a/b", "hub:a/b@main", f"hub:a@{REVISION}", "s3:/x/y", "https://x", "s3://UPPER/x"])
def test_what_names_no_source(text: str) -> None:
    with pytest.raises(Refused, match="neither"):
        source_of(text, None)


def test_what_names_a_source() -> None:
    assert source_of(f"hub:{MODEL}@{REVISION}", None).name == f"hub:{MODEL}@{REVISION}"
    assert source_of("s3://elsewhere/a/b", None).name == "s3://elsewhere/a/b/"
    assert source_of("s3://elsewhere/", None).name == "s3://elsewhere/"
