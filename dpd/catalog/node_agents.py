"""Images of the agents and device plugins that run on the nodes."""

from dataclasses import dataclass
from typing import Final, Literal

from dpd.catalog.regions import Region
from dpd.catalog.tables import yaml_table

AgentName = Literal["nvidia_device_plugin", "efa_device_plugin", "health_monitoring_agent", "efa_counters"]
NVIDIA: Final = "nvidia_device_plugin"
EFA: Final = "efa_device_plugin"
HEALTH: Final = "health_monitoring_agent"
EFA_COUNTERS: Final = "efa_counters"


@dataclass(frozen=True, slots=True)
class Agent:
    """One agent: where its image is, and in which version."""

    name: AgentName
    repository: str
    tag: str
    sources: tuple[str, ...]

    def image(self, region: Region, repository: str = "") -> str:
        """The image to pull in a Region, or from another ``repository`` (a mirror).

        Raises ``LookupError`` when AWS publishes no account for the Region: pulling from another Region would go out of
        a closed network and pay for the transfer, so nothing stands in for it.
        """
        if repository:
            return f"{repository}:{self.tag}"
        if "." in self.repository.partition("/")[0]:
            return f"{self.repository}:{self.tag}"
        account = region.efa_plugin_account if self.name == EFA else region.health_agent_account
        if not account:
            raise LookupError(f"no account is known that serves {self.repository} in {region.name}; name a repository of your own")
        return f"{region.registry(account)}/{self.repository}:{self.tag}"


def find(name: AgentName) -> Agent:
    """Return an agent of the catalog."""
    row = yaml_table("node_agents")[name]
    return Agent(name=name, repository=row["repository"], tag=row["tag"], sources=tuple(row["sources"]))


def names() -> tuple[AgentName, ...]:
    """All agents of the catalog, in file order."""
    return tuple(yaml_table("node_agents"))
