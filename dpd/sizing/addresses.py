"""How many addresses the GPU subnet must have."""

import math
from dataclasses import dataclass

from dpd.catalog import instances
from dpd.catalog import network as rules
from dpd.environment.environment import Environment


@dataclass(frozen=True, slots=True)
class AddressItem:
    """One line of the sum: ``count`` times ``each`` addresses."""

    what: str
    count: int
    each: int

    @property
    def addresses(self) -> int:
        """Addresses of the line."""
        return self.count * self.each

    def __str__(self) -> str:
        return f"{self.what} {self.count} x {self.each} = {self.addresses:,}"


@dataclass(frozen=True, slots=True)
class AddressNeed:
    """The lines of the sum. Groups of an unknown type, or of one whose need nobody states, are in ``unknown``."""

    items: tuple[AddressItem, ...]
    unknown: tuple[str, ...]

    @property
    def total(self) -> int:
        """Addresses needed."""
        return sum(item.addresses for item in self.items)

    @property
    def prefix_length(self) -> int:
        """The longest prefix (smallest subnet) with that many addresses."""
        return 32 - math.ceil(math.log2(max(self.total, 1)))

    def __str__(self) -> str:
        return " + ".join(map(str, self.items)) + f" = {self.total:,} addresses"


def address_need(environment: Environment) -> AddressNeed:
    """What the GPU subnet must hold when every group is at its scale ceiling.

    Nodes (``most_nodes x addresses per node``), a Lustre file system to make or adopted, the network interfaces of
    each endpoint's load balancer, and the addresses that AWS keeps of every subnet. With EFA-only interfaces the devices
    beside the first take none (derived).
    """
    items, unknown = [], []
    for name, group in environment.cluster.groups.items():
        instance = instances.find(group.instance_type)
        if instance is None or instance.addresses_per_node is None:
            unknown.append(name)
        else:
            without = max(0, (instance.efa or 0) - 1) if group.network_interface == "efa_only" else 0
            items.append(AddressItem(f"{name} ({group.instance_type})", group.most_nodes, instance.addresses_per_node - without))
    lustre = environment.storage.lustre
    capacity = (lustre.capacity_gib or (lustre.existing.capacity_gib if lustre.existing else None)) if lustre else None
    if capacity:
        items.append(AddressItem("Lustre", 1, rules.lustre_addresses(capacity)))
    if environment.endpoints:
        items.append(AddressItem("load balancers", len(environment.endpoints), rules.load_balancer_addresses()))
    items.append(AddressItem("kept by AWS", 1, rules.subnet_reserved_addresses()))
    return AddressNeed(tuple(items), tuple(unknown))
