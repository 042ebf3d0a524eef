"""What must be on the cluster before HyperPod makes its first node.

AWS ships these objects as a Helm chart that is not published anywhere and that also installs operators for training:
https://docs.aws.amazon.com/sagemaker/latest/dg/sagemaker-hyperpod-eks-install-packages-using-helm-chart.html
This is the part of it that inference needs. The names are AWS's, since its services look for them; so it is either these
objects or that chart, never both.
"""

from collections.abc import Mapping
from typing import Any

from charts.manifest import Manifest, chart_of
from charts.namespace import namespace
from charts.prerequisites import access, agents
from charts.prerequisites.nodes import with_efa, with_nvidia
from dpd.catalog import node_agents, regions
from dpd.catalog.node_agents import EFA, HEALTH, NVIDIA, AgentName
from dpd.environment.cluster import InstanceGroup
from dpd.environment.names import HYPERPOD_NAMESPACE

__all__ = ["prerequisites"]


def prerequisites(
    *, region: str, groups: Mapping[str, InstanceGroup], repositories: Mapping[AgentName, str] | None = None
) -> tuple[Manifest, ...]:
    """The objects in the order in which they must be applied, the namespace first; a file's name starts with its place.

    ``repositories`` replaces where an agent's image comes from (a mirror, say in a closed network). Raises
    ``LookupError`` for a Region or an instance type that the catalog does not know, and for a Region in which AWS
    publishes no image of an agent that the groups need.
    """
    place = regions.find(region)
    if place is None:
        raise LookupError(f"the Region {region!r} is not in the catalog; no image of another Region stands in for it")

    def image(name: AgentName) -> str:
        return node_agents.find(name).image(place, (repositories or {}).get(name, ""))

    bodies: list[dict[str, Any]] = [
        access.named(namespace(HYPERPOD_NAMESPACE)),
        *access.deep_health_check(),
        *access.patching(),
        *access.node_readers(),
    ]
    if nvidia := with_nvidia(groups):
        bodies += [*agents.health_monitoring(image(HEALTH), nvidia), agents.nvidia_device_plugin(image(NVIDIA), nvidia)]
    if efa := with_efa(groups):
        bodies.append(agents.efa_device_plugin(image(EFA), efa))
    manifests = chart_of(bodies)
    return tuple(Manifest(path=f"{number:02}-{manifest.path}", body=manifest.body) for number, manifest in enumerate(manifests))
