"""A role whose replicas span nodes: a LeaderWorkerSet of vLLM servers that share the experts of one model."""

import shlex
from collections.abc import Iterator
from typing import Any, Final

from dpd.backends.llmd.rollout import rolling
from dpd.backends.site import Site
from dpd.catalog.llmd import llmd
from dpd.environment.endpoint import Endpoint, Role
from dpd.environment.names import LlmdNames
from dpd.sizing.expert_parallel import local_ranks
from dpd.sizing.startup import startup_budget_seconds

KIND: Final = "LeaderWorkerSet"
SUPERVISOR: Final = "supervisor"
_START_RANK: Final = "START_RANK"
_SIDE_CHANNEL: Final = "VLLM_NIXL_SIDE_CHANNEL_PORT"


def wide_ep(endpoint: Endpoint, role_name: str, site: Site, template: dict[str, Any]) -> dict[str, Any]:
    """The LeaderWorkerSet of a role, made from the pod template that the role would have on one node.

    A pod that restarts takes its group along: the ranks hold parts of the same layers, and the others would wait for ever
    for one that comes back without its state. There is no exclusive topology: that would allow one group for each value of
    a node label, and all nodes are in one AZ. Raises ``ValueError`` for a group that is not known.
    """
    names, role = LlmdNames.of(endpoint), dict(endpoint.roles)[role_name]
    assert role.expert_parallel is not None, "only for roles with expert_parallel"
    return {
        "apiVersion": _facts()["api_version"],
        "kind": KIND,
        "metadata": {"name": names.workload(role_name), "namespace": endpoint.namespace, "labels": names.labels(role_name)},
        "spec": {
            **({} if role.autoscaling else {"replicas": role.replicas}),
            "startupPolicy": "LeaderCreated",
            "leaderWorkerTemplate": {
                "size": role.expert_parallel.nodes,
                "restartPolicy": "RecreateGroupOnPodRestart",
                "workerTemplate": _template(endpoint, role_name, role, site, template),
            },
            "rolloutStrategy": {"type": "RollingUpdate", "rollingUpdateConfiguration": rolling(role)},
        },
    }


def supervisor_port(role_name: str) -> int:
    """Where the supervisor of a pod's ranks says how they are: the port behind those of the ranks."""
    return llmd().ports["engine_supervisor" if role_name == "decode" else "supervisor"]


def flags(endpoint: Endpoint, role_name: str, site: Site) -> tuple[str, ...]:
    """vLLM flags of data and expert parallelism that are the same in every pod of the group."""
    role, ranks = dict(endpoint.roles)[role_name], _ranks(endpoint, role_name, site)
    assert role.expert_parallel is not None, "only for roles with expert_parallel"
    total = ranks * role.expert_parallel.nodes
    rank_by_rank = (
        "--data-parallel-multi-port-external-lb",
        "--data-parallel-supervisor-port",
        str(supervisor_port(role_name)),
        "--data-parallel-size-local",
        str(ranks),
    )
    return (
        *(rank_by_rank if supervised(ranks) else ()),
        *(("--data-parallel-size", str(total), "--data-parallel-rpc-port", str(llmd().ports["data_parallel_rpc"])) if total > 1 else ()),
        "--enable-expert-parallel",
        _facts()["all2all_flag"],
        role.expert_parallel.all2all,
    )


def supervised(ranks: int) -> bool:
    """Whether a pod has a supervisor: vLLM wants two ranks or more for one (``validate_multi_port_external_lb_args``)."""
    return ranks > 1


def environment(endpoint: Endpoint, role: Role) -> dict[str, str]:
    """Environment variables of a pod of the group, by name."""
    facts = _facts()
    chosen = facts.get(role.expert_parallel.all2all, {}) if role.expert_parallel else {}
    return {
        **facts["environment"],
        **chosen.get("environment", {}),
        facts["ready_timeout_variable"]: str(startup_budget_seconds(endpoint.model.shape)),
    }


def script(arguments: list[str], fixed: tuple[str, ...], ranks: int) -> str:
    """What a pod runs; ``fixed`` are the group's flags.

    Its place in the group, which LeaderWorkerSet puts into its environment, decides which ranks it has.
    vLLM adds a rank's number in the whole group to the ports of the side channel and of block events. Counted down by the
    pod's first rank they are the same in every pod, as the router and the network policy expect them.
    """
    ports = llmd().ports
    events = f"tcp://*:{ports['kv_events']}"
    quoted = [
        f"{shlex.quote(before + 'tcp://*:')}$(({ports['kv_events']} - {_START_RANK})){shlex.quote(after)}"
        if found
        else shlex.quote(argument)
        for argument in arguments
        for before, found, after in [argument.partition(events)]
    ]
    place = f"--data-parallel-{'start-rank' if supervised(ranks) else 'rank'} ${{{_START_RANK}}}"
    own = ("--data-parallel-address ${LWS_LEADER_ADDRESS}", place) if "--data-parallel-size" in fixed else ()
    # Shared memory outlives a container that restarts in its pod (https://github.com/llm-d/llm-d/issues/352).
    return "\n".join(
        (
            "find /dev/shm -type f -delete",
            f"{_START_RANK}=$(( ${{LWS_WORKER_INDEX:-0}} * {ranks} ))",
            f"export {_SIDE_CHANNEL}=$(( {ports['side_channel']} - {_START_RANK} ))",
            " ".join(("exec vllm serve", *quoted, *map(shlex.quote, fixed), *own)),
        )
    )


def _ranks(endpoint: Endpoint, role_name: str, site: Site) -> int:
    role = dict(endpoint.roles)[role_name]
    instance = site.instance(role.group)
    if instance is None:
        raise ValueError(f"endpoint {endpoint.name!r}: the {role_name} role's group {role.group!r} has no known instance type")
    ranks, most = local_ranks(role, instance), _facts()["pool_ports"]
    if ranks > most:
        raise ValueError(f"endpoint {endpoint.name!r}: {ranks} ranks of a {role_name} pod; a pool has {most} ports")
    return ranks


def _template(endpoint: Endpoint, role_name: str, role: Role, site: Site, template: dict[str, Any]) -> dict[str, Any]:
    """The template with one server for each rank, its ports, and where there are several probes that ask their supervisor."""
    spec = template["spec"]
    names, ranks = llmd().containers, _ranks(endpoint, role_name, site)
    return {
        **template,
        "spec": {
            **spec,
            **(
                {"initContainers": [_per_rank(one, ranks) if one["name"] == names["sidecar"] else one for one in spec["initContainers"]]}
                if "initContainers" in spec
                else {}
            ),
            "containers": [
                _server(endpoint, role_name, role, site, one) if one["name"] == names["server"] else one for one in spec["containers"]
            ],
            "volumes": list(_volumes(role, spec["volumes"])),
        },
    }


def _server(endpoint: Endpoint, role_name: str, role: Role, site: Site, container: dict[str, Any]) -> dict[str, Any]:
    ranks = _ranks(endpoint, role_name, site)
    several = _per_rank(container, ranks)
    given = {variable["name"] for variable in container["env"]}
    derived = [{"name": name, "value": value} for name, value in environment(endpoint, role).items() if name not in given]
    return {
        **several,
        "command": ["/bin/bash", "-c"],
        "args": [script(container["args"], flags(endpoint, role_name, site), ranks)],
        "env": [*(variable for variable in container["env"] if variable["name"] != _SIDE_CHANNEL), *derived],
        **(_supervision(role_name, several) if supervised(ranks) else {}),
    }


def _supervision(role_name: str, container: dict[str, Any]) -> dict[str, Any]:
    """The supervisor's port, and probes that ask it for all ranks."""
    health, ready = _facts()["health_path"], _facts()["ready_path"]
    asked = {"startupProbe": health, "livenessProbe": health, "readinessProbe": ready}
    return {
        "ports": [*container["ports"], {"name": SUPERVISOR, "containerPort": supervisor_port(role_name), "protocol": "TCP"}],
        **{probe: {**container[probe], "httpGet": {"path": path, "port": SUPERVISOR}} for probe, path in asked.items()},
    }


def _per_rank(container: dict[str, Any], ranks: int) -> dict[str, Any]:
    """A container with each of its ports once for every rank, counted up; the first keeps its name."""
    ports = [
        {**port, "name": f"{port['name']}-{rank}" if rank else port["name"], "containerPort": port["containerPort"] + rank}
        for port in container["ports"]
        for rank in range(ranks)
    ]
    return {**container, "ports": ports}


def _volumes(role: Role, volumes: list[dict[str, Any]]) -> Iterator[dict[str, Any]]:
    """The volumes, with as much shared memory as the way to the experts wants at least."""
    least = _facts().get(role.expert_parallel.all2all, {}).get("shm_gib", 0) if role.expert_parallel else 0
    for volume in volumes:
        memory = volume.get("emptyDir", {})
        size = int(memory["sizeLimit"].removesuffix("Gi")) if memory.get("medium") == "Memory" else 0
        yield {**volume, "emptyDir": {**memory, "sizeLimit": f"{max(size, least)}Gi"}} if size else volume


def _facts() -> dict[str, Any]:
    facts: dict[str, Any] = llmd().more["wide_ep"]
    return facts
