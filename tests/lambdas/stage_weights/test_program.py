"""The program as a build runs it: a process of its own, which may be killed."""

import json
import os
import subprocess
import sys
import threading
from typing import Any

import pytest
from stage_weights.progress import Progress
from stage_weights.record import record_key

from tests.lambdas.stage_weights.conftest import BELONGS
from tests.lambdas.stage_weights.hub import MODEL, REVISION, TOKEN, Hub
from tests.lambdas.stage_weights.test_copy import PREFIX, objects
from tests.support import ROOT


def program(s3_url: str, hub: Hub, **settings: str) -> "subprocess.Popen[str]":
    environment = {
        **{name: value for name, value in os.environ.items() if not name.lower().endswith("_proxy")},
        "PYTHONPATH": str(ROOT / "lambda"), "AWS_ENDPOINT_URL": s3_url, "AWS_ACCESS_KEY_ID": "testing", "AWS_SECRET_ACCESS_KEY": "testing",
        "AWS_DEFAULT_REGION": "us-east-2", "HF_ENDPOINT": hub.url, "STAGE_FROM": f"hub:{MODEL}@{REVISION}", "STAGE_BUCKET": "models",
        "STAGE_PREFIX": PREFIX, **settings,
    }  # fmt: skip
    return subprocess.Popen([sys.executable, "-m", "stage_weights"], env=environment, stdout=subprocess.PIPE, text=True)


def record(s3: Any) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(s3.get_object(Bucket="models", Key=record_key(PREFIX))["Body"].read())
    return found


def test_a_copy_that_is_killed_goes_on(s3: Any, s3_url: str, hub: Hub) -> None:
    hub.holds = {"model-1.safetensors": threading.Event()}
    first = program(s3_url, hub)
    assert hub.held.wait(60)
    # the small ones are there by now, or will be looked at again: only what the record names is believed
    first.kill()
    first.wait(30)
    for event in hub.holds.values():
        event.set()
    hub.holds.clear()
    before = record(s3)
    assert before["complete"] is False
    assert "model-1.safetensors" not in before["files"]
    assert "model-1.safetensors" not in objects(s3)
    hub.asked.clear()
    second = program(s3_url, hub)
    out, _ = second.communicate(timeout=120)
    assert second.returncode == 0, out
    assert objects(s3) == {path: content for path, content in hub.files.items() if path in BELONGS}
    again = {path for path, _ in hub.asked[1:]}
    assert not again & before["files"].keys()
    assert record(s3)["complete"] is True


@pytest.mark.parametrize(
    ("gated", "token", "code", "says"),
    [(True, TOKEN, 0, "done: 6 files"), (True, "", 1, "there is no token"), (False, "", 0, "done: 6 files")],
)
def test_how_it_ends(s3: Any, s3_url: str, hub: Hub, gated: bool, token: str, code: int, says: str) -> None:
    assert s3
    hub.gated = gated
    done = program(s3_url, hub, HUB_TOKEN=token)
    out, _ = done.communicate(timeout=120)
    assert (done.returncode, says in out) == (code, True), out
    assert all(line.startswith("stage: ") for line in out.splitlines())
    assert not token or token not in out


def test_s3_that_does_not_answer(s3_url: str, hub: Hub) -> None:
    done = program(s3_url, hub, STAGE_BUCKET="no-such-bucket")
    out, _ = done.communicate(timeout=120)
    assert (done.returncode, "start it again" in out) == (3, True)


def test_a_source_that_is_none(s3_url: str, hub: Hub) -> None:
    done = program(s3_url, hub, STAGE_FROM="main")
    out, _ = done.communicate(timeout=120)
    assert (done.returncode, "it cannot be done" in out) == (1, True)


def test_how_far_it_is(capsys: pytest.CaptureFixture[str]) -> None:
    progress = Progress()
    progress.begin(100 * 2**30, 20 * 2**30)
    assert capsys.readouterr().out == "stage: 80.0 GiB to copy, 20.0 GiB there already\n"
    progress.add(20 * 2**30)
    began = progress._began
    assert progress.line(began + 100) == "40.0 of 100.0 GiB (40%), 205 MiB/s, 0:05:00 left"
    progress.add(-20 * 2**30)
    assert progress.line(began + 100) == "20.0 of 100.0 GiB (20%), 0 MiB/s"
    progress.begin(0, 0)
    assert "(100%)" in progress.line(began)
