"""HyperPod instance types: what a node of each type carries."""

from dataclasses import dataclass
from functools import cache

from dpd.catalog.tables import csv_table


@dataclass(frozen=True, slots=True)
class Instance:
    """One ``ml.`` instance type. ``None`` means that no source states the value.

    ``addresses_per_node`` is the number of VPC addresses a node takes from its subnet with the default CNI
    settings; ``addresses_basis`` says whether AWS publishes it or we derived it. ``operator_dpd`` is whether
    the inference operator's documentation allows the type for disaggregated prefill and decode.
    """

    type: str
    architecture: str
    vcpus: int
    memory_gib: float
    gpu: str
    gpus: int
    gpu_memory_mib: int | None
    efa: int | None
    network_gbps: float | None
    rdma_read: bool | None
    rdma_write: bool | None
    nitro: int | None
    local_nvme_gb: int | None
    max_pods: int | None
    addresses_per_node: int | None
    addresses_basis: str
    operator_dpd: bool
    lint_known: bool
    gpus_share_pcie: bool
    sources: tuple[str, ...]

    @property
    def family(self) -> str:
        """The family part of the name: ``p5`` of ``ml.p5.48xlarge``."""
        return self.type.split(".")[1]

    @property
    def pod_slots(self) -> int | None:
        """Pods that a HyperPod node can hold with the default CNI settings (derived).

        HyperPod gives a node one network interface for pods, not as many as EC2 would: 14 pods on ml.g5.2xlarge, and
        49 on ml.p5.48xlarge beside its 32 EFA interfaces. The addresses per node count a second, warm interface where
        there is no EFA.
        """
        if self.addresses_per_node is None:
            return None
        return self.addresses_per_node - self.efa if self.efa else self.addresses_per_node // 2 - 1

    @property
    def gpu_memory_gib(self) -> float:
        """Memory of one GPU in GiB; 0 where there is no GPU or no source states it."""
        return (self.gpu_memory_mib or 0) / 1024


def _yes(text: str) -> bool | None:
    return None if text == "" else text == "yes"


def _int(text: str) -> int | None:
    return int(text) if text else None


def _instance(row: dict[str, str]) -> Instance:
    return Instance(
        type=row["type"],
        architecture=row["architecture"],
        vcpus=int(row["vcpus"]),
        memory_gib=float(row["memory_gib"]),
        gpu=row["gpu"],
        gpus=int(row["gpus"]),
        gpu_memory_mib=_int(row["gpu_memory_mib"]),
        efa=_int(row["efa"]),
        network_gbps=float(row["network_gbps"]) if row["network_gbps"] else None,
        rdma_read=_yes(row["rdma_read"]),
        rdma_write=_yes(row["rdma_write"]),
        nitro=_int(row["nitro"]),
        local_nvme_gb=_int(row["local_nvme_gb"]),
        max_pods=_int(row["max_pods"]),
        addresses_per_node=_int(row["addresses_per_node"]),
        addresses_basis=row["addresses_basis"],
        operator_dpd=row["operator_dpd"] == "yes",
        lint_known=row["lint_known"] == "yes",
        gpus_share_pcie=row["gpus_share_pcie"] == "yes",
        sources=tuple(row["sources"].split()),
    )


@cache
def _rows() -> dict[str, dict[str, str]]:
    return {row["type"]: row for row in csv_table("instances")}


@cache
def find(instance_type: str) -> Instance | None:
    """Return the facts of an instance type, or ``None`` for a type the catalog does not know."""
    row = _rows().get(instance_type)
    return None if row is None else _instance(row)


def types() -> tuple[str, ...]:
    """All known instance types, in file order (GPU types first)."""
    return tuple(_rows())


def operator_dpd_types() -> tuple[str, ...]:
    """The types that AWS names for disaggregated prefill and decode with the inference operator."""
    return tuple(name for name, row in _rows().items() if row["operator_dpd"] == "yes")
