"""Whose a pod is, when one endpoint's name begins another's."""

import pytest
from health_gate.kubernetes import belongs

PREFIX = "prefill-chat-"


@pytest.mark.parametrize("name", ["prefill-chat-6d4f8b9c7-x2x4z", "prefill-chat-6d4f8b9c7", "prefill-chat-0"])
def test_pods_and_replica_sets_belong_to_their_deployment(name: str) -> None:
    assert belongs(name, PREFIX)


@pytest.mark.parametrize("name", ["prefill-chat-2-6d4f8b9c7-x2x4z", "prefill-chat-large-6d4f8b9c7-x2x4z", "prefill-chatty-6d4f8b9c7-x2x4z"])
def test_pods_of_an_endpoint_with_a_longer_name_do_not(name: str) -> None:
    assert not belongs(name, PREFIX)


def test_without_a_prefix_labels_decide() -> None:
    assert belongs("efa-exporter-of-somebody-x2x4z", "")


def test_pods_of_a_set_have_more_words_and_only_its_own() -> None:
    assert belongs("chat-0a1b2c3d-0-5c9d7f-prefill-0-1", "chat-0a1b2c3d-0-", 4)
    assert not belongs("chat-0a1b2c3d-0-5c9d7f-prefill-0-1-x", "chat-0a1b2c3d-0-", 4)
