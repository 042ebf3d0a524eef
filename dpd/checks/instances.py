"""Rules about instance types: what a node must have so that KV can cross to another node."""

import difflib
from collections.abc import Iterator
from typing import Final

from dpd.catalog import instances
from dpd.catalog.instances import Instance
from dpd.checks.registry import Context, Problem, check
from dpd.environment.environment import Environment
from dpd.finding import Level
from dpd.sizing.fleet import group_path, groups, roles

_EFA: Final = "https://docs.aws.amazon.com/AWSEC2/latest/UserGuide/efa.html"
_DPD: Final = "https://docs.aws.amazon.com/sagemaker/latest/dg/sagemaker-hyperpod-model-deployment-dpd.html"
_TYPES: Final = "https://docs.aws.amazon.com/sagemaker/latest/APIReference/API_ClusterInstanceGroupSpecification.html"


def _serving_groups(environment: Environment) -> Iterator[tuple[str, Instance]]:
    """Groups with GPUs on which a role runs, each once."""
    used = {placed.role.group for placed in roles(environment)}
    for name, _, instance in groups(environment):
        if name in used and instance.gpus:
            yield name, instance


def _type_path(group: str) -> str:
    return f"{group_path(group)}.instance_type"


def _usable() -> str:
    return "use one of: " + ", ".join(instances.operator_dpd_types())


def _unsupported(instance: Instance) -> bool:
    return instance.gpus > 0 and instance.architecture != "amd64"


@check(
    "INS001", "The instance type is in the catalog",
    why="Everything that is derived from a type (EFA devices, GPU memory, addresses) would be 0 for a type nobody knows, and a pod "
        "without EFA devices moves its KV over TCP without saying so.",
    link=_TYPES,
    binding=True,
    seen_in=("https://github.com/skypilot-org/skypilot/pull/5318", "https://github.com/awslabs/ai-on-eks/issues/320"),
)  # fmt: skip
def _known_type(environment: Environment, _: Context) -> Iterator[Problem]:
    known = instances.types()
    for name, group in environment.cluster.groups.items():
        written = group.instance_type
        full = f"ml.{written.removeprefix('ml.')}"
        if instances.find(written) or instances.find(full):
            continue  # a known type without its prefix is INS002
        near = difflib.get_close_matches(full[:60], known, n=3)
        fix = f"did you mean {' or '.join(near)}?" if near else "write a HyperPod type, such as ml.p5.48xlarge"
        yield Problem(_type_path(name), "is no instance type that the catalog knows", fix, written, f"one of {len(known)} HyperPod types")


@check(
    "INS002", "HyperPod instance types start with ml.",
    why="EC2 and HyperPod name the same hardware differently. The cluster API refuses the EC2 name, and selectors on the node label "
        "would match nothing.",
    link=_TYPES,
)  # fmt: skip
def _prefix(environment: Environment, _: Context) -> Iterator[Problem]:
    for name, group in environment.cluster.groups.items():
        if not group.instance_type.startswith("ml.") and instances.find(f"ml.{group.instance_type}"):
            full = f"ml.{group.instance_type}"
            yield Problem(_type_path(name), "is the EC2 name of the type", f"write {full}", group.instance_type, full)


@check(
    "INS003", "Nodes that serve a role have EFA",
    why="KV goes from prefill to decode node through EFA. Types below a family's EFA size have none, so every hand-over falls back to "
        "TCP, slowly and silently.",
    link=_EFA,
    seen_in=(
        "https://github.com/aws/sagemaker-hyperpod-cli/issues/367", "https://github.com/aws/sagemaker-hyperpod-cli/issues/306",
        "https://github.com/awslabs/ai-on-sagemaker-hyperpod/pull/134",
    ),
)  # fmt: skip
def _has_efa(environment: Environment, _: Context) -> Iterator[Problem]:
    for name, instance in _serving_groups(environment):
        if instance.efa == 0:
            larger = _smallest_with_efa(instance.family)
            below = f"; {larger} is the smallest of the family that has one" if larger else f"; no size of {instance.family} has one"
            yield Problem(_type_path(name), f"has 0 EFA devices{below}", _usable(), instance.type, "1 EFA device or more")


def _smallest_with_efa(family: str) -> str:
    found = [instance for name in instances.types() if (instance := instances.find(name)) and instance.family == family and instance.efa]
    return min(found, key=lambda instance: instance.vcpus).type if found else ""


@check(
    "INS004", "EFA of a serving node can write to remote memory",
    why="The transfer of KV uses RDMA writes. Older EFA generations only read, or neither; the transfer then fails or falls back to "
        "host copies.",
    link=_EFA,
)  # fmt: skip
def _rdma_write(environment: Environment, _: Context) -> Iterator[Problem]:
    for name, instance in _serving_groups(environment):
        if not instance.efa or _unsupported(instance) or instance.rdma_write:
            continue
        read = {True: "yes", False: "no", None: "unknown"}[instance.rdma_read]
        said = "no" if instance.rdma_write is False else "not stated by any source, so it is not relied on"
        message = f"its {instance.efa} EFA devices: RDMA read {read}, RDMA write {said}"
        yield Problem(_type_path(name), message, _usable(), instance.type, "RDMA write")


@check(
    "INS005", "GB200 is not supported",
    why="Its nodes are Arm and the inference operator's images are amd64; they form one 72-GPU domain that wants IMEX channels; and "
        "sources disagree on how many EFA devices a node has (0 or 8).",
    link="https://github.com/aws/sagemaker-hyperpod-cli/blob/011ca927/src/sagemaker/hyperpod/training/constants.py",
)  # fmt: skip
def _gb200(environment: Environment, _: Context) -> Iterator[Problem]:
    for name, _group, instance in groups(environment):
        if _unsupported(instance):
            message = (
                f"is {instance.architecture} and the inference operator is built for amd64; sources also disagree on its EFA devices "
                "(0 or 8), so no share can be derived"
            )
            yield Problem(_type_path(name), message, _usable(), instance.type, "amd64 nodes with a known number of EFA devices")


@check(
    "INS006", "The operator disaggregates on the types AWS names",
    why="AWS supports disaggregated prefill and decode with the inference operator on five types and no others. Others may have EFA, "
        "but their GPUs talk over PCIe.",
    link=_DPD,
)  # fmt: skip
def _operator_types(environment: Environment, _: Context) -> Iterator[Problem]:
    used = {placed.role.group for placed in roles(environment) if placed.endpoint.backend == "operator"}
    for name, instance in _serving_groups(environment):
        # Without EFA, without RDMA write, or Arm: the deeper reason has been given.
        if name in used and instance.efa and instance.rdma_write and not _unsupported(instance) and not instance.operator_dpd:
            message = "is not among the types that AWS supports for disaggregation with the operator"
            yield Problem(_type_path(name), message, _usable(), instance.type, ", ".join(instances.operator_dpd_types()))


@check(
    "INS007", "GPUs of a pod talk over NVLink", level=Level.WARNING,
    why="Tensor parallelism exchanges activations in every layer. Over a shared PCIe bus that exchange, and the copies to the network "
        "beside it, set the pace.",
    link="https://aws.amazon.com/blogs/machine-learning/disaggregated-prefill-and-decode-for-llm-inference-on-sagemaker-hyperpod/",
)  # fmt: skip
def _pcie(environment: Environment, _: Context) -> Iterator[Problem]:
    for placed in roles(environment):
        if placed.instance and placed.instance.gpus_share_pcie and placed.role.tensor_parallel > 1:
            message = (
                f"tensor parallel over {placed.role.tensor_parallel} GPUs, and the {placed.instance.gpus} GPUs of "
                f"{placed.instance.type} share PCIe"
            )
            fix = "use a type with NVLink (p5 and newer), or tensor_parallel: 1 with a smaller model"
            yield Problem(f"{placed.path}.tensor_parallel", message, fix, placed.role.tensor_parallel, "1 on this type")


@check(
    "INS008", "Prefill and decode run on one instance type", level=Level.WARNING,
    why="Every rank writes to its peer through its own EFA devices. Types differ in the number and speed of them, in GPU memory and in "
        "kernels; AWS describes disaggregation on one type, and EFA between P4 and any other type does not work at all.",
    link=_EFA,
)  # fmt: skip
def _one_type(environment: Environment, _: Context) -> Iterator[Problem]:
    by_endpoint: dict[str, dict[str, Instance]] = {}
    for placed in roles(environment):
        if placed.instance and placed.instance.gpus:
            by_endpoint.setdefault(placed.endpoint_path, {})[placed.name] = placed.instance
    for path, found in by_endpoint.items():
        types = {instance.type for instance in found.values()}
        families = {instance.family for instance in found.values()}
        if len(types) == 1:
            continue
        p4 = any(family.startswith("p4") for family in families) and not all(family.startswith("p4") for family in families)
        prefill, decode = found["prefill"], found["decode"]
        rails = ", ".join(f"{role} {it.type}: {it.efa or 0} EFA devices for {it.gpus} GPUs" for role, it in found.items())
        message = f"EFA between P4 and other types does not work ({rails})" if p4 else f"the roles differ ({rails})"
        yield Problem(
            f"{path}.decode.group", message, "put both roles on one type", decode.type, prefill.type,
            level=Level.ERROR if p4 else None,
        )  # fmt: skip


@check(
    "INS009", "The account's quota covers the GPU nodes", level=Level.INFO,
    why="Each account has its own HyperPod quota for each type, often 0, separate from that of EC2. A cluster above it is refused, or "
        "stays without nodes. It cannot be read without the account.",
    link="https://docs.aws.amazon.com/sagemaker/latest/dg/sagemaker-hyperpod-prerequisites.html",
    seen_in=("https://github.com/awslabs/awsome-distributed-ai/issues/204", "https://github.com/awslabs/awsome-distributed-ai/issues/198"),
)  # fmt: skip
def _quota(environment: Environment, context: Context) -> Iterator[Problem]:
    if context.preflight and context.preflight.facts:
        return  # the account was asked, and rules of its own compare
    nodes: dict[str, list[tuple[str, int]]] = {}
    for name, group, instance in groups(environment):
        if instance.gpus and group.most_nodes:
            nodes.setdefault(instance.type, []).append((name, group.most_nodes))
    for instance_type, parts in nodes.items():
        total = sum(count for _, count in parts)
        message = f"needs {' + '.join(f'{count} ({name})' for name, count in parts)} = {total} nodes of {instance_type}"
        fix = f"see that the quota '{instance_type} for cluster usage' of account {environment.account} is {total} or more"
        yield Problem("cluster.groups", message, fix, total, "the account's quota")
