"""S3 as moto's server gives it, empty for every test."""

import json
import os
import random
import urllib.request
from collections.abc import Iterator
from typing import Any

import botocore.session
import pytest
from moto.server import ThreadedMotoServer

from tests.lambdas.stage_weights.hub import Hub, running

PART = 5 * 2**20
"""The least that S3 takes as a part."""


@pytest.fixture(scope="session")
def s3_url() -> Iterator[str]:
    server = ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
    server.start()
    host, port = server.get_host_and_port()
    yield f"http://{host}:{port}"
    server.stop()


@pytest.fixture
def s3(s3_url: str) -> Any:
    urllib.request.urlopen(urllib.request.Request(f"{s3_url}/moto-api/reset", method="POST"))
    session = botocore.session.Session()
    session.set_credentials("testing", "testing")
    client = session.create_client("s3", region_name="us-east-2", endpoint_url=s3_url)
    for name in ("models", "elsewhere"):
        client.create_bucket(Bucket=name, CreateBucketConfiguration={"LocationConstraint": "us-east-2"})
    return client


def model() -> dict[str, bytes]:
    """A small model: two shards named by an index, of which one takes three parts, and what does not belong to it."""
    some = random.Random(7)
    shards = {f"model-{number}.safetensors": some.randbytes(size) for number, size in ((1, 2 * PART + 12345), (2, 70_000))}
    index = {"metadata": {"total_size": 1000}, "weight_map": {"a": "model-1.safetensors", "b": "model-2.safetensors"}}
    return {
        ".gitattributes": b"*",
        "config.json": b'{"layers": 2}',
        "model.safetensors.index.json": json.dumps(index).encode(),
        **shards,
        "consolidated.safetensors": some.randbytes(3000),
        "original/consolidated.00.pth": some.randbytes(3000),
        "tokenizer files/vocab.json": some.randbytes(5000),
        "empty.txt": b"",
    }


BELONGS = {
    "config.json", "model.safetensors.index.json", "model-1.safetensors", "model-2.safetensors", "tokenizer files/vocab.json", "empty.txt",
}  # fmt: skip


@pytest.fixture
def hub() -> Iterator[Hub]:
    with running(model()) as made:
        yield made


@pytest.fixture(autouse=True)
def no_proxy(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in [name for name in os.environ if name.lower().endswith("_proxy")]:
        monkeypatch.delenv(name)
