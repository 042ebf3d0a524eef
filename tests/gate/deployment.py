"""A healthy deployment of an environment, on loopback."""

from typing import Any, Final

from dpd.backends.backend import backend
from dpd.backends.site import Site
from dpd.environment.environment import Environment
from tests.lambdas.health_gate.aws_calls import SELF, trust
from tests.lambdas.health_gate.efa import Efa
from tests.lambdas.health_gate.world import World
from tests.support import environment

CHANGES: Final[dict[str, Any]] = {
    "app": "dpd",
    "endpoints[0].name": "chat",
    "endpoints[0].namespace": "llm",
    "endpoints[0].model.served_name": "llama",
    "endpoints[0].exposure.sagemaker_endpoint": "chat",
}
"""Edits of the dev environment that make it the one whose servers the gate's own tests run."""
LUSTRE: Final = "fs-0123456789abcdef0"
GROUP: Final = SELF


def deployed(world: World) -> Environment:
    """Make the world what a deployment of the edited dev environment is."""
    typed = environment(CHANGES)
    (body,) = backend("operator").objects(typed.endpoints[0], Site.of(typed))
    world.custom = {**(world.custom or {}), "spec": body["spec"]}
    free = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
    world.definition = {"spec": {"versions": [{"name": "v1", "served": True, "schema": {"openAPIV3Schema": free}}]}}
    for pod in world.pods:
        pod["metadata"]["labels"] = {"inference.sagemaker.aws.amazon.com/dpd-role": pod["metadata"]["labels"]["dpd-role"]}
        for container in pod["spec"]["containers"]:
            container["resources"]["requests"].pop("hugepages-2Mi", None)
    world.aws.trust = trust(subject="system:serviceaccount:hyperpod-inference-system:hyperpod-inference-controller-manager")
    world.aws.objects = [{"Key": "Llama-3.3-70B-Instruct/model.safetensors", "Size": 10}]
    Efa().join(world)
    world.aws.add_on["addonVersion"] = "v99.0.0-eksbuild.1"
    return typed
