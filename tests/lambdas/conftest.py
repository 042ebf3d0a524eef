"""Shared by the tests of Lambda functions."""

from collections.abc import Iterator

import pytest

from tests.lambdas.health_gate.world import World, running


@pytest.fixture
def world(monkeypatch: pytest.MonkeyPatch) -> Iterator[World]:
    """A healthy environment on loopback, free to break."""
    for name in ("AWS_PROFILE", "AWS_ENDPOINT_URL"):
        monkeypatch.delenv(name, raising=False)
    for name in ("AWS_CONFIG_FILE", "AWS_SHARED_CREDENTIALS_FILE"):
        monkeypatch.setenv(name, "/nonexistent")
    with running() as made:
        yield made
