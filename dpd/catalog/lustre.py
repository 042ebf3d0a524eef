"""FSx for Lustre: which sizes and speeds exist, and who can mount it over EFA."""

from typing import Any, Final

from dpd.catalog.instances import Instance
from dpd.catalog.tables import yaml_table

_SHOWN: Final = 3


def _table() -> Any:
    return yaml_table("lustre")


def throughputs() -> tuple[int, ...]:
    """Throughput per TiB that can be bought, in MB/s."""
    return tuple(_table()["throughput_mbps_per_tib"]["values"])


def capacity_allowed(capacity_gib: int, *, throughput_mbps_per_tib: int, efa: bool) -> bool:
    """Whether a file system of this size exists. The throughput must be one of ``throughputs()``."""
    first, step = _steps(throughput_mbps_per_tib, efa=efa)
    return capacity_gib == first or (capacity_gib > 0 and capacity_gib % step == 0)


def capacity_rule(throughput_mbps_per_tib: int, *, efa: bool) -> str:
    """The allowed sizes in words: the first ones, and the step."""
    first, step = _steps(throughput_mbps_per_tib, efa=efa)
    sizes = [first, *(step * n for n in range(1, _SHOWN) if step * n != first)]
    return f"{', '.join(f'{size:,}' for size in sizes)} and further steps of {step:,} GiB"


def next_capacity_gib(capacity_gib: int, *, throughput_mbps_per_tib: int, efa: bool) -> int:
    """The smallest allowed size that is not smaller."""
    first, step = _steps(throughput_mbps_per_tib, efa=efa)
    return first if capacity_gib <= first else -(-capacity_gib // step) * step


def _steps(throughput_mbps_per_tib: int, *, efa: bool) -> tuple[int, int]:
    if efa:
        step = int(_table()["efa_capacity_step_gib"]["values"][throughput_mbps_per_tib])
        return step, step
    return int(_table()["capacity_gib"]["first"]), int(_table()["capacity_gib"]["step"])


def metadata_iops_allowed(iops: int) -> bool:
    """Whether this many provisioned metadata operations per second can be bought."""
    row = _table()["metadata_iops"]
    return iops in row["values"] or (iops % row["step"] == 0 and 0 < iops <= row["most"])


def metadata_iops_rule() -> str:
    """The allowed metadata operations per second, in words."""
    row = _table()["metadata_iops"]
    return f"{', '.join(f'{value:,}' for value in row['values'])} or multiples of {row['step']:,} up to {row['most']:,}"


def mounts_over_efa(instance: Instance) -> bool:
    """Whether a node of this type can be an EFA client: an EFA device and a young enough Nitro card."""
    return bool(instance.efa) and (instance.nitro or 0) >= int(_table()["efa_client"]["oldest_nitro"])


def efa_connections(instance: Instance) -> int:
    """EFA connections that one client of this type opens with AWS's set-up script; 0 when it cannot."""
    if not mounts_over_efa(instance):
        return 0
    row = _table()["efa_connections"]
    return int(row["by_family"].get(instance.family, row["several_cards"] if (instance.efa or 0) > 1 else row["one_card"]))


def most_efa_connections() -> int:
    """EFA connections that one file system accepts, over all its clients."""
    return int(_table()["efa_connections"]["most"])
