"""How fast KV cache crosses between the roles, and how fast it must."""

from dataclasses import dataclass
from typing import Final

from dpd.catalog import serving
from dpd.catalog.instances import Instance
from dpd.catalog.models import ModelShape
from dpd.sizing.memory import kv_bytes_per_token_per_rank

_BITS: Final = 8
_GIGA: Final = 1e9


def line_rate_gb_per_second(instance: Instance, efa_devices: int) -> float:
    """What ``efa_devices`` EFA devices of a node carry: ``network x devices / devices of a node / 8``. 0 where nobody states it."""
    if not instance.efa or not instance.network_gbps:
        return 0.0
    return instance.network_gbps * min(efa_devices, instance.efa) / instance.efa / _BITS


def kv_bytes_moved(model: ModelShape, tokens: float, tensor_parallel: int, kv_dtype: str = "auto") -> float:
    """Bytes that all ranks together send of a prompt: every rank sends what it holds, copies of KV heads too."""
    return tokens * kv_bytes_per_token_per_rank(model, tensor_parallel, kv_dtype) * tensor_parallel


@dataclass(frozen=True, slots=True)
class Link:
    """The way of KV from one prefill pod to one decode pod, over the EFA devices that both ask for, all ranks together."""

    gb_per_second: float
    """What a hand-over reaches: line rate x efficiency."""
    fixed_seconds: float
    overhead_seconds: float = 0.0
    """What a hand-over takes besides the wire: handshake, descriptors, the decoder's next step."""

    def wire_seconds(self, size: float) -> float:
        """Seconds on the wire of so many bytes; infinite without a link."""
        return self.fixed_seconds + size / (self.gb_per_second * _GIGA) if self.gb_per_second else float("inf")

    def handover_seconds(self, size: float) -> float:
        """Seconds from the end of prefill until the decoder may begin."""
        return self.wire_seconds(size) + self.overhead_seconds

    def utilisation(self, bytes_per_second: float) -> float:
        """Busy share of the link; more than 1 is a bottleneck of throughput."""
        return bytes_per_second / (self.gb_per_second * _GIGA) if self.gb_per_second else float("inf")


def kv_link(instance: Instance, efa_devices: int, *, efficiency: float | None = None, overhead_seconds: float = 0.0) -> Link:
    """The link of pods with so many EFA devices. ``efficiency`` is the share of the line rate; default: the catalog's."""
    share = serving.kv_link_efficiency() if efficiency is None else efficiency
    return Link(line_rate_gb_per_second(instance, efa_devices) * share, serving.kv_link_fixed_seconds(), overhead_seconds)


def kv_floor_gb_per_second(instance: Instance | None, *, efa_devices: int, ranks: int) -> float:
    """Slowest hand-over, in GB/s for each tensor parallel rank, that EFA can be made responsible for.

    A share of the line rate of the EFA devices that a rank has, and never below the rate under which AWS's guide says that
    EFA was not used: ``max(1, 5 % x network x devices / devices of a node / 8 / ranks)``. A rank of p5.48xlarge has 4 devices
    of 100 Gbit/s, 50 GB/s, so 2.5 GB/s. Where the catalog knows no line rate the floor is AWS's.
    """
    least = serving.least_kv_gb_per_second()
    line_rate = line_rate_gb_per_second(instance, efa_devices) / max(1, ranks) if instance else 0.0
    return round(max(least, serving.kv_share_of_line_rate() * line_rate), 3)
