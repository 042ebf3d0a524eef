"""What environment variables of a serving pod say about its network. Shared by rules over files and over manifests."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from dpd.catalog.runtime_versions import huge_pages, interfaces, switches, words

_FALSE = frozenset({"", "0", "false", "no", "off"})


@dataclass(frozen=True, slots=True)
class Fault:
    """One variable that contradicts the pod it is in."""

    variable: str
    message: str
    fix: str


def without_efa(variables: Mapping[str, str], efa_devices: int) -> Iterator[Fault]:
    """Settings of libfabric in a pod that has no EFA device, and a pod with devices that is told to use TCP."""
    for name, value in variables.items():
        if not name.startswith(words("efa_beginnings")):
            continue
        provider = value.lower() if name == "FI_PROVIDER" else ""
        if provider in words("tcp_providers"):
            if efa_devices:
                yield Fault(name, f"sends everything over {provider} although the pod has {efa_devices} EFA devices", "remove the variable")
        elif efa_devices and name == "FI_PROVIDER" and provider != "efa":
            yield Fault(name, f"lets libfabric choose something else than the pod's {efa_devices} EFA devices", "remove the variable")
        elif not efa_devices:
            yield Fault(
                name,
                "configures libfabric in a pod without EFA devices, so KV travels over TCP and nobody is told",
                "request EFA devices, or remove the variable",
            )


def huge_pages_without_request(variables: Mapping[str, str], requested: bool) -> Iterator[Fault]:  # noqa: FBT001
    """EFA's huge pages need a request in the pod; both or neither."""
    known = huge_pages()
    name, resource = str(known["variable"]), str(known["resource"])
    wanted = variables.get(name, "").lower() not in _FALSE
    if wanted and not requested:
        message = f"makes libfabric allocate huge pages, and the pod requests none, so it dies at start; {known['amount']} are needed"
        where = "hugepages_mib with llm-d, raw.spec with the operator"
        yield Fault(name, message, f"remove the variable, or request {resource}: {known['amount']} for both roles ({where})")
    if requested and not wanted and name in variables:
        yield Fault(
            name, f"turns huge pages off while the pod requests {resource}, which not every node has", f"remove the {resource} request"
        )


def socket_interface(value: str) -> Iterator[Fault]:
    """``NCCL_SOCKET_IFNAME`` must leave the pod's own interface, and must not pick the link of EKS Pod Identity.

    NCCL compares beginnings of names: ``^lo,docker`` excludes, ``=eth0`` is exact, ``eth`` includes.
    """
    own, dead_end = interfaces()["own"], interfaces()["not_routable"]
    exclude, exact = value.startswith("^"), value.lstrip("^").startswith("=")
    names = [name.strip() for name in value.lstrip("^=").split(",") if name.strip()]

    def matched(interface: str) -> bool:
        return any(interface == name if exact else interface.startswith(name) for name in names)

    if matched(own) is exclude:
        yield Fault(
            "NCCL_SOCKET_IFNAME",
            f"leaves NCCL without {own}, the pod's own interface, and it finds no socket",
            f"use ^lo,docker,veth,{dead_end.rstrip('0')}",
        )
    elif matched(dead_end) is not exclude:
        yield Fault(
            "NCCL_SOCKET_IFNAME",
            f"lets NCCL pick {dead_end}, the link of EKS Pod Identity, on which it hangs",
            f"use ^lo,docker,veth,{dead_end.rstrip('0')}",
        )


def hardware_off(variables: Mapping[str, str]) -> Iterator[Fault]:
    """Switches that leave EFA or NVLink unused."""
    for name, switch in switches().items():
        if name in variables and (variables[name].lower() not in _FALSE) is switch["bad"]:
            yield Fault(name, str(switch["effect"]), "remove the variable")


def tcp_backend(variables: Mapping[str, str], efa_devices: int) -> Iterator[Fault]:
    """NIXL must use libfabric on EFA: UCX has no EFA transport that moves KV between GPUs, and falls back to TCP."""
    for name in words("backend_variables"):
        chosen = variables.get(name, "")
        if efa_devices and name in variables and "LIBFABRIC" not in chosen.upper():
            yield Fault(
                name,
                f"makes NIXL do without libfabric, and {chosen or 'nothing'} does not use EFA",
                "remove the variable, or say LIBFABRIC",
            )


def advertised_address(variables: Mapping[str, str]) -> Iterator[Fault]:
    """The address at which peers fetch KV is each pod's own: a text cannot hold it, only a reference to ``status.podIP``."""
    for name in words("advertised_addresses"):
        if name in variables:
            yield Fault(
                name,
                "is told to peers as it stands, so they call each pod at the same address; 0.0.0.0 or localhost is the caller itself",
                "remove the variable; only valueFrom with fieldRef status.podIP can be right",
            )


def all_faults(variables: Mapping[str, str], *, efa_devices: int, huge_pages_requested: bool) -> Iterator[Fault]:
    """Every fault of one pod's variables."""
    yield from without_efa(variables, efa_devices)
    yield from huge_pages_without_request(variables, huge_pages_requested)
    yield from tcp_backend(variables, efa_devices)
    yield from hardware_off(variables)
    yield from advertised_address(variables)
    if "NCCL_SOCKET_IFNAME" in variables:
        yield from socket_interface(variables["NCCL_SOCKET_IFNAME"])
