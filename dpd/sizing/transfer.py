"""How fast KV cache must cross between the roles."""

from typing import Final

from dpd.catalog import serving
from dpd.catalog.instances import Instance

_BITS: Final = 8


def kv_floor_gb_per_second(instance: Instance | None, *, efa_devices: int, ranks: int) -> float:
    """Slowest hand-over, in GB/s for each tensor parallel rank, that EFA can be made responsible for.

    A share of the line rate of the EFA devices that a rank has, and never below the rate under which AWS's guide says that
    EFA was not used: ``max(1, 5 % x network x devices / devices of a node / 8 / ranks)``. A rank of p5.48xlarge has 4 devices
    of 100 Gbit/s, 50 GB/s, so 2.5 GB/s. Where the catalog knows no line rate the floor is AWS's.
    """
    least = serving.least_kv_gb_per_second()
    if instance is None or not instance.efa or not instance.network_gbps:
        return least
    line_rate = instance.network_gbps * min(efa_devices, instance.efa) / instance.efa / _BITS / max(1, ranks)
    return round(max(least, serving.kv_share_of_line_rate() * line_rate), 3)
