"""The manifests of the llm-d example, as a reviewer reads them."""

import pytest
from syrupy.assertion import SnapshotAssertion

from charts.render import render, to_yaml
from tests.support import LLMD_EXAMPLE, environment


def files(changes: dict[str, object]) -> dict[str, str]:
    rendered = render(environment(changes, example=LLMD_EXAMPLE))
    return {f"{name}/{manifest.path}": to_yaml(manifest) for name, group in rendered.endpoints.items() for manifest in group}


@pytest.mark.parametrize("changes", [{}, {"endpoints[0].routing.gateway": {}}], ids=["standalone", "gateway"])
def test_manifests_of_the_example(changes: dict[str, object], snapshot: SnapshotAssertion) -> None:
    assert files(changes) == snapshot


def test_nothing_belongs_to_the_operator() -> None:
    text = "".join(files({}).values())
    for word in ("InferenceEndpointConfig", "hyperpod-inference-system", "sagemaker.aws", "PD_BUFFER_SIZE"):
        assert word not in text.replace("sagemaker.amazonaws.com/", "")
