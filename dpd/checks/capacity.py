"""Rules about capacity: do the pods fit the nodes that are paid for, now, during an update, and at the scale ceiling?"""

from collections.abc import Callable, Iterator
from typing import Final

from dpd.backends.controllers import idle_add_ons, needed
from dpd.catalog import instances, limits, serving
from dpd.catalog.add_ons import INFERENCE
from dpd.catalog.controllers import all_controllers
from dpd.catalog.instances import Instance
from dpd.checks.registry import Context, Problem, check
from dpd.environment.cluster import InstanceGroup
from dpd.environment.environment import Environment
from dpd.finding import Level
from dpd.sizing.expert_parallel import local_ranks, pod_gpus, pods_per_replica, weight_bytes_per_gpu
from dpd.sizing.fleet import RoleOnGpus, group_path, groups, roles, roles_on_gpus
from dpd.sizing.memory import GIB
from dpd.sizing.packing import NODE_AGENT_PODS, PodKind, exceeding, node_room, pack, total
from dpd.sizing.placement import apart, carries_system_pods, closed
from dpd.sizing.pod import efa_share, host_memory_floor_gib, pod_shape, server_shape, whole_shape
from dpd.sizing.tiers import cpu_tier

_DPD: Final = "https://docs.aws.amazon.com/sagemaker/latest/dg/sagemaker-hyperpod-model-deployment-dpd.html"
_INSTALL: Final = "https://docs.aws.amazon.com/sagemaker/latest/dg/sagemaker-hyperpod-model-deployment-ts-console-cfn-failures.html"
_AUTOSCALING: Final = "https://docs.aws.amazon.com/sagemaker/latest/dg/sagemaker-hyperpod-model-deployment-autoscaling.html"
_SYSTEM_REPORT: Final = "https://github.com/awslabs/ai-on-sagemaker-hyperpod/issues/142"
_SYSTEM_NODES: Final = 2
_CLUSTER_PODS: Final = 2
"""CoreDNS. The pods that AWS counts for the operator include cert-manager, metrics-server and the CSI controllers (derived)."""

OUTPUTS_OF_AN_ENDPOINT: Final = 2
"""Its URL, and the command that prints its load balancer."""

Pods = Callable[[RoleOnGpus], int]


def _replicas(it: RoleOnGpus) -> int:
    return it.placed.role.replicas * pods_per_replica(it.placed.role)


def _most(it: RoleOnGpus) -> int:
    return it.placed.most_replicas * pods_per_replica(it.placed.role)


def _with_surge(it: RoleOnGpus) -> int:
    return (it.placed.role.replicas + it.placed.role.max_surge) * pods_per_replica(it.placed.role)


def _serving(environment: Environment) -> dict[str, list[RoleOnGpus]]:
    """The roles of each group, by group."""
    found: dict[str, list[RoleOnGpus]] = {}
    for it in roles_on_gpus(environment):
        found.setdefault(it.placed.role.group, []).append(it)
    return found


def _kinds(members: list[RoleOnGpus], pods: Pods) -> list[PodKind]:
    return [PodKind(it.placed.label, whole_shape(it.placed.endpoint, it.placed.name, it.instance), pods(it)) for it in members]


def _gpu_sum(members: list[RoleOnGpus], pods: Pods) -> tuple[int, str]:
    """GPUs that the roles of a group take, and the sum as text."""
    parts = [(it.placed.label, pods(it), pod_gpus(it.placed.role, it.instance)) for it in members]
    needed = sum(count * each for _, count, each in parts)
    return needed, f"{' + '.join(f'{label} {count} x {each}' for label, count, each in parts)} = {needed:,} GPUs"


def _gpus(nodes: int, instance: Instance) -> tuple[int, str]:
    """GPUs of a number of nodes, and the product as text."""
    return nodes * instance.gpus, f"{nodes} x {instance.type} = {nodes * instance.gpus:,} GPUs"


def _too_large(it: RoleOnGpus) -> tuple[str, ...]:
    return exceeding(PodKind("", whole_shape(it.placed.endpoint, it.placed.name, it.instance), 1).needs, node_room(it.instance))


@check(
    "CAP001", "The GPUs of a group carry the replicas of its roles",
    why="Pods beyond the GPUs of their group stay Pending, and the endpoint never becomes ready while every node is billed.",
    link=_DPD,
)  # fmt: skip
def _enough_gpus(environment: Environment, _: Context) -> Iterator[Problem]:
    for name, members in _serving(environment).items():
        group, instance = members[0].group, members[0].instance
        (needed, need_text), (have, have_text) = _gpu_sum(members, _replicas), _gpus(group.count, instance)
        if needed > have:
            nodes = -(-needed // instance.gpus)
            message = f"{need_text}; {have_text}"
            yield Problem(
                f"{group_path(name)}.count", message, f"set count: {nodes} or lower the replicas", group.count, f"{nodes} or more"
            )


@check(
    "CAP002", "One pod fits one node",
    why="A role's pod runs on one node. A pod larger than a node, in GPUs, EFA devices, CPUs, memory or huge pages, is never scheduled.",
    link=_DPD,
    seen_in=("https://github.com/llm-d/llm-d/pull/1101",),
)  # fmt: skip
def _pod_fits(environment: Environment, _: Context) -> Iterator[Problem]:
    fields = {"GPUs": "tensor_parallel", "EFA": "efa_devices", "CPUs": "cpus", "GiB": "memory_gib", "MiB": "hugepages_mib"}
    for it in roles_on_gpus(environment):
        for excess in _too_large(it):
            field = fields.get(excess.split()[1], "group")
            message = f"a {it.placed.name} pod asks for {excess} that a {it.instance.type} offers to pods"
            fix = f"lower {field}, or use a larger instance type"
            yield Problem(f"{it.placed.path}.{field}", message, fix, getattr(it.placed.role, field), excess.split(" of ")[-1])


@check(
    "CAP003", "The pods of a group fit its nodes together",
    why="GPUs may suffice in sum and still not fit: two pods of 5 GPUs do not share a node of 8. EFA devices are exclusive: one pod that "
        "asks for all of them keeps every other pod off its node.",
    link=_DPD,
    seen_in=("https://github.com/aws-samples/aws-efa-eks/issues/4", "https://github.com/NVIDIA/nvcf/pull/1354"),
)  # fmt: skip
def _pods_pack(environment: Environment, _: Context) -> Iterator[Problem]:
    for name, members in _serving(environment).items():
        group, instance = members[0].group, members[0].instance
        if _gpu_sum(members, _replicas)[0] > group.count * instance.gpus or any(map(_too_large, members)):
            continue  # said by CAP001 or CAP002
        kinds, room = _kinds(members, _replicas), node_room(instance)
        packing = pack(kinds, room, group.count)
        if packing.left:
            short = exceeding(total(kinds), tuple(group.count * have for have in room))
            waiting = ", ".join(f"{kind.count} of {kind.name} ({_shape(kind)})" for kind in packing.left)
            why = f"together they need {', '.join(short)}" if short else "what is left on each node is too small"
            message = f"on {group.count} x {instance.type}, largest pods first, no node is left for {waiting}: {why}"
            fix = "lower the requests of the pods to their share of a node, or add nodes"
            yield Problem(f"{group_path(name)}.count", message, fix, group.count)


def _shape(kind: PodKind) -> str:
    shape = kind.shape
    pages = f", {shape.hugepages_mib} MiB of huge pages" if shape.hugepages_mib else ""
    return f"{shape.gpus} GPUs, {shape.efa_devices} EFA, {shape.cpus} CPUs, {shape.memory_gib} GiB{pages}"


@check(
    "CAP004", "A pod asks for the EFA devices of its GPUs", level=Level.WARNING,
    why="Each GPU has its own EFA devices next to it. Fewer than the share narrow the hand-over of KV; none at all means TCP, silently; "
        "more than the share take the devices of a neighbour.",
    link="https://docs.aws.amazon.com/AWSEC2/latest/UserGuide/efa.html",
    seen_in=("https://github.com/aws/sagemaker-hyperpod-cli/issues/306", "https://github.com/aws/sagemaker-hyperpod-cli/pull/318"),
)  # fmt: skip
def _efa(environment: Environment, _: Context) -> Iterator[Problem]:
    for it in roles_on_gpus(environment):
        role, instance = it.placed.role, it.instance
        gpus = pod_gpus(role, instance)
        if not instance.efa or gpus > instance.gpus:
            continue
        share, asked = efa_share(instance, gpus), pod_shape(role, instance).efa_devices
        sum_text = f"{instance.efa} EFA devices x {gpus} of {instance.gpus} GPUs = {share}"
        path, limit = f"{it.placed.path}.efa_devices", str(share)
        if asked == 0:
            fix = (
                f"remove efa_devices (then {share} are asked for)" if share else "use more GPUs for a pod, or a type with more EFA devices"
            )
            yield Problem(path, f"the pod has no EFA device, so KV goes over TCP; {sum_text}", fix, asked, "1 or more", level=Level.ERROR)
        elif asked < share:
            yield Problem(path, f"the pod leaves {share - asked} of its devices unused: {sum_text}", "remove efa_devices", asked, limit)
        elif asked > share:
            message = f"the pod takes {asked - share} devices beyond its share: {sum_text}"
            yield Problem(path, message, "remove efa_devices", asked, limit, level=Level.INFO)


@check(
    "CAP005", "A rolling update with extra pods has GPUs for them",
    why="With max_surge the new pod starts before the old one goes. On a full group it waits for a GPU that is only freed after it is "
        "ready: the update never ends.",
    link="https://kubernetes.io/docs/concepts/workloads/controllers/deployment/#max-surge",
    seen_in=("https://github.com/defilantech/LLMKube/issues/192", "https://github.com/ai-runway/airunway/issues/400"),
)  # fmt: skip
def _surge(environment: Environment, _: Context) -> Iterator[Problem]:
    for members in _serving(environment).values():
        group, instance = members[0].group, members[0].instance
        room, have_text = node_room(instance), _gpus(group.count, instance)[1]
        if not any(it.placed.role.max_surge for it in members) or pack(_kinds(members, _replicas), room, group.count).left:
            continue
        for surging in members:
            if surging.placed.role.max_surge:
                counts = [_with_surge(it) if it is surging else _replicas(it) for it in members]
                kinds = [PodKind(kind.name, kind.shape, count) for kind, count in zip(_kinds(members, _replicas), counts, strict=True)]
                if pack(kinds, room, group.count).left:
                    sums = " + ".join(f"{kind.name} {kind.count} x {kind.shape.gpus}" for kind in kinds)
                    message = f"during an update {sums} = {total(kinds)[0]:,} GPUs; {have_text}"
                    yield Problem(
                        f"{surging.placed.path}.max_surge", message, "set max_surge: 0, or add a node",
                        surging.placed.role.max_surge, "0 without a spare node",
                    )  # fmt: skip


@check(
    "CAP006", "The GPUs of a group carry the autoscalers' ceiling",
    why="An autoscaler that asks for more pods than there are GPUs leaves them Pending: the load rises and nothing happens. Nodes are "
        "not added by themselves.",
    link=_AUTOSCALING,
)  # fmt: skip
def _ceiling(environment: Environment, _: Context) -> Iterator[Problem]:
    for name, members in _serving(environment).items():
        group, instance = members[0].group, members[0].instance
        needed, need_text = _gpu_sum(members, _most)
        kinds, room = _kinds(members, _most), node_room(instance)
        if needed <= _gpu_sum(members, _replicas)[0] or any(map(_too_large, members)) or not pack(kinds, room, group.count).left:
            continue
        scaled = next(it for it in members if _most(it) > _replicas(it))
        path = f"{scaled.placed.path}.autoscaling.max_replicas"
        if pack(kinds, room, group.most_nodes).left:
            message = f"at the ceiling {need_text}; {_gpus(group.most_nodes, instance)[1]}"
            fix = f"lower max_replicas, or raise {group_path(name)}.max_count and count"
            yield Problem(path, message, fix, _most(scaled), f"{group.most_nodes} nodes")
        else:
            message = f"at the ceiling {need_text}; {_gpus(group.count, instance)[1]} stand, {_gpus(group.most_nodes, instance)[1]} may"
            fix = f"raise {group_path(name)}.count before the load comes; nothing adds nodes by itself"
            yield Problem(path, message, fix, _most(scaled), f"{group.count} nodes", level=Level.WARNING)


def _small(instance: Instance) -> bool:
    least = instances.find(serving.smallest_system_type())
    return least is not None and (instance.vcpus < least.vcpus or instance.memory_gib < least.memory_gib)


@check(
    "CAP007", "A group of CPU nodes carries the system pods",
    why="CoreDNS, cert-manager, the CSI controllers, the operator and its routers need amd64 nodes without taints before any endpoint. "
        "Without them the add-ons stay DEGRADED until CloudFormation gives up, hours later.",
    link=_INSTALL, seen_in=(_SYSTEM_REPORT, "https://github.com/awslabs/ml-container-creator/pull/297"),
)  # fmt: skip
def _system_group(environment: Environment, _: Context) -> Iterator[Problem]:
    able = [(name, group, it) for name, group, it in groups(environment) if carries_system_pods(group, it)]
    least = serving.smallest_system_type()
    if not able:
        reasons = "; ".join(f"{name}: {_unable(group, it)}" for name, group, it in groups(environment))
        message = f"no group can carry them ({reasons or 'no group of a known type'})"
        fix = f"add a group such as system: {{instance_type: {least}, count: {_SYSTEM_NODES}}}"
        # An adopted cluster may have nodes that this file knows nothing of.
        level = Level.WARNING if environment.cluster.existing else None
        yield Problem("cluster.groups", message, fix, limit="amd64, no GPUs, no taints", level=level)
        return
    for name, _group, it in able:
        if _small(it):
            message = f"{it.type} has {it.vcpus} CPUs and {it.memory_gib:g} GiB; {least} is the smallest that AWS recommends"
            yield Problem(f"{group_path(name)}.instance_type", message, f"use {least} or larger", it.type, least, level=Level.WARNING)
    nodes = sum(group.count for _name, group, _it in able)
    if nodes < _SYSTEM_NODES:
        message = f"{nodes} node carries the system pods: when it is replaced, DNS, webhooks and routers are gone"
        path = f"{group_path(able[0][0])}.count"
        yield Problem(path, message, f"set count: {_SYSTEM_NODES}", nodes, f"{_SYSTEM_NODES} or more", level=Level.WARNING)


def _unable(group: InstanceGroup, instance: Instance) -> str:
    if instance.gpus:
        return f"{instance.gpus} GPUs"
    if instance.architecture != "amd64":
        return instance.architecture
    return "0 nodes" if group.count == 0 else "tainted"


@check(
    "CAP008", "The system nodes have slots for the system pods",
    why="A node holds as many pods as it has addresses on one network interface: 14 on ml.g5.xlarge, 29 on ml.c5.4xlarge. The operator's "
        "add-on alone needs 13 slots, and each endpoint brings a router.",
    link=_INSTALL, seen_in=(_SYSTEM_REPORT,),
)  # fmt: skip
def _system_slots(environment: Environment, _: Context) -> Iterator[Problem]:
    able = [name for name, group, it in groups(environment) if carries_system_pods(group, it)]
    carriers = [(name, group, it) for name, group, it in groups(environment) if group.count and not closed(group) and it.pod_slots]
    if not able:
        return  # said by CAP007
    on_carriers = {name for name, _group, _it in carriers}
    workers = sum(placed.role.replicas * pods_per_replica(placed.role) for placed in roles(environment) if placed.role.group in on_carriers)
    nodes, routers = sum(group.count for _name, group, _it in carriers), len(environment.endpoints)
    brought = sum(all_controllers()[name].pods for name in needed(environment.endpoints, environment.cluster.add_ons))
    need = serving.operator_pod_slots() + brought + _CLUSTER_PODS + routers + workers + NODE_AGENT_PODS * nodes
    have = sum(group.count * (it.pod_slots or 0) for _name, group, it in carriers)
    if need > have:
        whose = "add-ons" if INFERENCE in idle_add_ons(environment.endpoints) else "operator"
        message = (
            f"{serving.operator_pod_slots()} for the {whose} + "
            f"{f'{brought} for controllers + ' if brought else ''}{_CLUSTER_PODS} for the cluster + {routers} routers + "
            f"{workers} workers + "
            f"{NODE_AGENT_PODS} agents x {nodes} nodes = {need} pods; "
            f"{' + '.join(f'{group.count} x {it.pod_slots} ({it.type})' for _name, group, it in carriers)} = {have} slots"
        )
        path = f"{group_path(able[0])}.count"
        fix = "add nodes, or use a larger type"
        level = Level.WARNING if environment.cluster.existing else None
        yield Problem(path, message, fix, environment.cluster.groups[able[0]].count, f"{need} slots", level=level)


@check(
    "CAP009", "A pod has the host memory that its ranks need",
    why="A container killed for memory takes a rank with it; the others report a network fault, and days go into the wrong search.",
    link="https://docs.vllm.ai/en/latest/usage/troubleshooting/",
    seen_in=("https://github.com/awslabs/awsome-distributed-ai/issues/312",),
)  # fmt: skip
def _host_memory(environment: Environment, _: Context) -> Iterator[Problem]:
    for it in roles_on_gpus(environment):
        endpoint, role, gpus = it.placed.endpoint, it.placed.role, pod_gpus(it.placed.role, it.instance)
        weights = weight_bytes_per_gpu(endpoint.model.shape, role, it.instance) / GIB
        tier = cpu_tier(endpoint, it.placed.name, role, it.instance)
        tier_gib = tier.host_gib if tier else 0
        floor = host_memory_floor_gib(gpus, tier_gib=tier_gib, weight_gib=weights)
        asked = server_shape(endpoint, it.placed.name, it.instance).memory_gib
        if asked < floor:
            kept = f"{endpoint.kv.cpu_tier_gib} x {gpus} GPUs for the CPU tier" if tier and tier.tier_gib else "no CPU tier"
            buffers = f" + {tier.buffers_gib} for the store's buffers" if tier and tier.buffers_gib else ""
            message = (
                f"{kept}{buffers} + {weights:.0f} for weights on their way + 6 x {gpus} for processes and shared memory + 8 = "
                f"{floor} GiB; the pod has {asked}"
            )
            own = role.memory_gib is not None
            fix = f"set memory_gib: {floor} or more" if own else "lower kv.cpu_tier_gib, or use more GPUs of the node for a pod"
            yield Problem(f"{it.placed.path}.memory_gib", message, fix, asked, f"{floor} GiB or more")


@check(
    "CAP010", "Prefill and decode run on different nodes", level=Level.WARNING,
    why="AWS describes disaggregation from one prefill node and one decode node on. On one node both roles share CPUs, memory "
        "bandwidth and EFA devices, which is what they were separated for.",
    link="https://aws.amazon.com/blogs/machine-learning/disaggregated-prefill-and-decode-for-llm-inference-on-sagemaker-hyperpod/",
)  # fmt: skip
def _different_nodes(environment: Environment, _: Context) -> Iterator[Problem]:
    pairs: dict[str, list[RoleOnGpus]] = {}
    for it in roles_on_gpus(environment):
        pairs.setdefault(it.placed.endpoint_path, []).append(it)
    for path, both in pairs.items():
        if len({it.placed.role.group for it in both}) > 1 or len(both) == 1 or apart(both[0].placed.endpoint, environment.cluster.groups):
            continue
        group, instance = both[0].group, both[0].instance
        sizes = [(it.placed.name, pod_gpus(it.placed.role, instance)) for it in both]
        gpus = sum(size for _name, size in sizes)
        text = f"{' + '.join(f'{name} {size}' for name, size in sizes)} = {gpus} GPUs of {instance.gpus}"
        if gpus <= instance.gpus and group.count:
            certain = "share" if group.count == 1 else "may share"
            message = f"both roles are in group {both[0].placed.role.group}, so their pods {certain} a node: {text}"
            fix = "give each role a group of its own, or all GPUs of a node"
            yield Problem(f"{path}.decode.group", message, fix, both[0].placed.role.group, "two nodes")


@check(
    "CAP011", "The endpoints of an environment fit one stack",
    why="Each endpoint has outputs of its own, and CloudFormation refuses a template with more than it allows in all.",
    link="https://docs.aws.amazon.com/AWSCloudFormation/latest/UserGuide/cloudformation-limits.html",
)  # fmt: skip
def _one_stack(environment: Environment, _: Context) -> Iterator[Problem]:
    count, limit = len(environment.endpoints), limits.stack_outputs()
    most = limit // OUTPUTS_OF_AN_ENDPOINT
    if count > most:
        needed = count * OUTPUTS_OF_AN_ENDPOINT
        message = f"{count} endpoints x {OUTPUTS_OF_AN_ENDPOINT} outputs = {needed}; a stack has at most {limit}"
        yield Problem("endpoints", message, "move some of them to a second environment with a cluster of its own", count, f"{most}")


@check(
    "CAP012", "Every busy process of a pod has a CPU", level=Level.WARNING,
    why="vLLM runs a process for each rank, one for the engine and one for the server, and all of them are busy at once. With fewer "
        "CPUs the GPUs wait for them.",
    link="https://docs.vllm.ai/en/latest/configuration/optimization/",
)  # fmt: skip
def _cpus(environment: Environment, _: Context) -> Iterator[Problem]:
    for it in roles_on_gpus(environment):
        cpus, ranks, engines = (
            server_shape(it.placed.endpoint, it.placed.name, it.instance).cpus, pod_gpus(it.placed.role, it.instance),
            local_ranks(it.placed.role, it.instance),
        )  # fmt: skip
        busy = ranks + 2 * engines
        if cpus < busy:
            pair = "engine + server" if engines == 1 else f"{engines} engines + {engines} servers"
            message = f"{ranks} ranks + {pair} = {busy} processes; the pod has {cpus} CPUs"
            yield Problem(f"{it.placed.path}.cpus", message, "leave cpus out", cpus, f"{busy} or more")
