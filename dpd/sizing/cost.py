"""What an environment costs: at rest, and for a million tokens. A price is shown with its date, or the word unknown."""

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import chain
from typing import Final

from dpd.catalog.kubernetes import control_plane_usd_per_hour
from dpd.catalog.prices import Price, PriceBook, Purchase
from dpd.catalog.sources import source
from dpd.environment.cluster import InstanceGroup
from dpd.environment.environment import Environment
from dpd.environment.storage import Lustre


@dataclass(frozen=True, slots=True)
class CostItem:
    """One thing that is billed by the hour whether or not it works. ``price`` is for one ``unit``."""

    what: str
    quantity: int
    unit: str
    price: Price | None

    @property
    def usd_per_hour(self) -> float | None:
        """Price of the whole line, or ``None`` when unknown."""
        return self.quantity * self.price.usd_per_hour if self.price else None

    def __str__(self) -> str:
        cost = f"{self.usd_per_hour:,.2f} USD/h, at {self.price}" if self.price else "price unknown"
        return f"{self.what}: {self.quantity:,} x {self.unit}, {cost}"


_SECONDS_PER_HOUR: Final = 3600
_MILLION: Final = 1e6


@dataclass(frozen=True, slots=True)
class TokenCost:
    """Dollars for a million tokens at a rate. ``blended`` counts prompt and answer alike; the others put all on one kind."""

    usd_per_hour: float
    input: float
    output: float
    blended: float


def token_cost(usd_per_hour: float, *, rate_per_second: float, input_tokens: float, output_tokens: float) -> TokenCost:
    """``$/h / (requests/s x tokens x 3600 / 1e6)``. A rate of 0 costs infinitely much."""

    def each(tokens: float) -> float:
        millions = rate_per_second * tokens * _SECONDS_PER_HOUR / _MILLION
        return usd_per_hour / millions if millions else float("inf")

    return TokenCost(usd_per_hour, each(input_tokens), each(output_tokens), each(input_tokens + output_tokens))


def purchase_of(group: InstanceGroup) -> Purchase:
    """How the nodes of a group are bought."""
    return "on_demand" if group.capacity in (None, "on_demand") else "spot" if group.capacity == "spot" else "training_plan"


def at_rest(environment: Environment, prices: PriceBook | None = None) -> tuple[CostItem, ...]:
    """Everything that is billed by the hour once the environment stands: nodes first, then what lies around them.

    What is made or kept by someone else (adopted VPC, cluster, file system) is not counted. Storage in S3, logs, keys
    and traffic are billed by use and left out.
    """
    book = prices or PriceBook()
    return tuple(chain(_nodes(environment, book), _cluster(environment), _network(environment, book), _lustre(environment, book)))


def _nodes(environment: Environment, prices: PriceBook) -> Iterator[CostItem]:
    for name, group in environment.cluster.groups.items():
        if group.count:
            yield CostItem(
                f"group {name}", group.count, group.instance_type, prices.find("instance", group.instance_type, purchase_of(group))
            )


def _cluster(environment: Environment) -> Iterator[CostItem]:
    if environment.cluster.existing is None:
        listed = source("eks-pricing")
        price = Price(control_plane_usd_per_hour(extended=False), "every Region", "standard support", listed, listed.as_of)
        yield CostItem("EKS control plane", 1, "cluster", price)


def _network(environment: Environment, prices: PriceBook) -> Iterator[CostItem]:
    egress = environment.network.egress
    if egress and egress.nat_gateways:
        yield CostItem("NAT gateways", egress.nat_gateways, "gateway", prices.find("network", "nat_gateway"))
    if egress and egress.interface_endpoints:
        yield CostItem("interface endpoints", 1, "set, in each of its AZs", prices.find("network", "interface_endpoint"))
    if balanced := sum(endpoint.backend == "operator" or endpoint.routing.gateway is not None for endpoint in environment.endpoints):
        yield CostItem("load balancers", balanced, "balancer", prices.find("network", "load_balancer"))


def _lustre(environment: Environment, prices: PriceBook) -> Iterator[CostItem]:
    lustre: Lustre | None = environment.storage.lustre
    if lustre and lustre.existing is None and lustre.capacity_gib:
        speed = f"1 GiB at {lustre.throughput_mbps_per_tib} MB/s per TiB"
        yield CostItem("Lustre", lustre.capacity_gib, speed, prices.find("lustre", f"persistent_2_{lustre.throughput_mbps_per_tib}"))
