"""Rules about llm-d's router: what its version makes of the words of ``routing``, and whether its objects belong together."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import yaml

from dpd.backends.llmd.router_pod import pods as router_pods
from dpd.backends.llmd.router_pod import shares_state
from dpd.catalog.llmd import llmd
from dpd.catalog.llmd_plugins import decodes_without_prefiller, picker_facts, pinned
from dpd.checks.manifests import Groups, Object, Objects, manifest_check, mapping, templates, where
from dpd.checks.registry import Context, Problem, check
from dpd.environment.endpoint import Endpoint
from dpd.environment.environment import Environment
from dpd.finding import Level
from dpd.sizing.fleet import groups
from dpd.sizing.packing import PodKind, exceeding, node_room, pack
from dpd.sizing.pod import PodShape

if TYPE_CHECKING:
    from dpd.backends.llmd.picker_config import PickerConfig

_PAGE: Final = "docs/llm-d-routing.md"
_SCHEDULING: Final = "https://llm-d.ai/docs/0.9/architecture/core/router/epp/scheduling"
_PLUGINS: Final = "https://github.com/llm-d/llm-d-router/tree/v0.10.0/pkg/epp/framework/plugins"
_CONFIG_FILE: Final = "--config-file"
_LOADER: Final = getattr(yaml, "CSafeLoader", yaml.SafeLoader)


def _endpoints(environment: Environment) -> Iterator[tuple[str, Endpoint]]:
    for index, endpoint in enumerate(environment.endpoints):
        if endpoint.backend == "llm-d":
            yield f"endpoints[{index}]", endpoint


@check(
    "LLR001", "The router can take turns", level=Level.WARNING,
    why="The pinned router has no picker that takes turns. Pods are drawn at random instead: even over an hour, and uneven in the minute "
        "in which two long prompts meet on one prefiller.",
    link=_SCHEDULING,
)  # fmt: skip
def turns(environment: Environment, _: Context) -> Iterator[Problem]:
    """Say what round robin becomes."""
    for path, endpoint in _endpoints(environment):
        if endpoint.routing.strategy == "round_robin":
            message = f"router {pinned()} draws pods at random instead of taking turns"
            yield Problem(f"{path}.routing.strategy", message, "use load, which counts who is busy, or prefix_aware", "round_robin")


@check(
    "LLR002", "Sessions are what clients make of them", level=Level.WARNING,
    why="The router answers with a header that names the decoder, and a client that does not send it back is spread like any other. The "
        "plugin is experimental in the pinned version: its parameters may change with any update.",
    link=f"{_PLUGINS}/scheduling/scorer/sessionaffinity",
    seen_in=("https://github.com/kubernetes-sigs/inference-perf/issues/582", "https://github.com/llm-d/llm-d-router/issues/1551"),
)  # fmt: skip
def sessions(environment: Environment, _: Context) -> Iterator[Problem]:
    """Name the header that clients must return."""
    header = picker_facts().headers.session
    for path, endpoint in _endpoints(environment):
        if endpoint.routing.strategy == "session":
            message = f"holds for clients that send the header {header} of an answer with the next request; the plugin is experimental"
            fix = "use prefix_aware, which needs nothing of clients, or acknowledge this"
            yield Problem(f"{path}.routing.strategy", message, fix, "session")


@check(
    "LLR003", "The tokenizer reads the model where it runs",
    why="With kv_aware the router asks a tokenizer, which runs on nodes without GPUs and reads the model's files as workers do. Files on "
        "the disk of a GPU node are not there: its pods never start, and without tokens the router knows of no block.",
    link=_PAGE,
)  # fmt: skip
def tokenizer_files(environment: Environment, _: Context) -> Iterator[Problem]:
    """Refuse weights that lie on the nodes of the roles."""
    for path, endpoint in _endpoints(environment):
        volume = endpoint.model.source.volume
        if endpoint.routing.strategy == "kv_aware" and volume and volume.host_path:
            message = "lies on the GPU nodes, and the tokenizer of kv_aware runs elsewhere"
            yield Problem(
                f"{path}.model.source.volume.host_path", message, "use s3, lustre, hub or a claim, or prefix_aware", volume.host_path
            )


@check(
    "LLR004", "What is counted as cached is what the router knows", level=Level.INFO,
    why="The decider of the pinned version reads the router's own record of where it sent which prefix, whatever the strategy. That is not "
        "what engines hold, and two routers do not share it, so there is one: while it restarts, requests fail.",
    link="https://github.com/llm-d/llm-d-router/issues/2554",
)  # fmt: skip
def cached(environment: Environment, _: Context) -> Iterator[Problem]:
    """Say where exact knowledge and the threshold part."""
    for path, endpoint in _endpoints(environment):
        routing = endpoint.routing
        if routing.strategy == "kv_aware" and not shares_state(endpoint) and routing.threshold_counts == "non_cached":
            message = "pods are chosen by what engines hold, but tokens are counted by the router's own record, so there is one router"
            yield Problem(f"{path}.routing.threshold_counts", message, "use prompt for two routers", "non_cached")


@check(
    "LLR005", "Behind a Gateway, no prefiller means no endpoint", level=Level.WARNING,
    why="The pinned router lets a decoder read the prompt when no prefiller is ready, and says nothing. Its own proxy can refuse exactly "
        "such requests; a Gateway's cannot. There the router takes itself out of service, and short prompts fail with the long ones.",
    link=_PAGE,
    seen_in=(
        "https://github.com/llm-d/llm-d-router/issues/2427", "https://github.com/ai-dynamo/dynamo/pull/4220",
        "https://github.com/ai-dynamo/dynamo/pull/4286", "https://github.com/ai-dynamo/dynamo/pull/6515",
    ),
)  # fmt: skip
def gateway_without_prefiller(environment: Environment, _: Context) -> Iterator[Problem]:
    """Say what ``fail`` costs behind a Gateway."""
    for path, endpoint in _endpoints(environment):
        routing = endpoint.routing
        if routing.gateway and routing.no_prefiller == "fail" and routing.threshold_tokens and decodes_without_prefiller(pinned()):
            message = f"while no prefiller is ready, prompts below {routing.threshold_tokens:,} tokens fail as well"
            fix = "use fallback, or leave out gateway, or acknowledge this"
            yield Problem(f"{path}.routing.no_prefiller", message, fix, "fail")


@check(
    "LLR006", "A Gateway waits as long as an answer takes",
    why="A time limit counts until the last token, and an answer that is not streamed is silent until then: 504 and 502 errors that no log "
        "of an engine explains.",
    link="https://gateway-api.sigs.k8s.io/guides/http-timeouts/",
    seen_in=("https://github.com/llm-d-incubation/llm-d-deployer/issues/339", "https://github.com/llm-d/llm-d/issues/1564"),
)  # fmt: skip
def gateway_patience(environment: Environment, _: Context) -> Iterator[Problem]:
    """Compare the Gateway's limits with the objectives and the longest answer that they allow."""
    for path, endpoint in _endpoints(environment):
        gateway, goals = endpoint.routing.gateway, endpoint.objectives
        if gateway is None:
            continue
        first, last = -(-goals.ttft_p99_ms // 1000), -(-(goals.ttft_p99_ms + endpoint.model.max_model_len * goals.itl_p99_ms) // 1000)
        request, idle = gateway.request_timeout_seconds, gateway.idle_timeout_seconds
        longest = f"{goals.ttft_p99_ms:,} ms + {endpoint.model.max_model_len:,} tokens x {goals.itl_p99_ms:,} ms = {last:,} s"
        if 0 < request < last:
            level = Level.ERROR if request <= first else Level.WARNING
            message, fix = f"cuts the longest answer that the objectives allow: {longest}", f"set {last}, or 0 for no limit"
            yield Problem(f"{path}.routing.gateway.request_timeout_seconds", message, fix, request, f"{last} or more", level)
        if idle <= first:
            message = f"is over before the first token: ttft_p99_ms is {goals.ttft_p99_ms:,}"
            yield Problem(f"{path}.routing.gateway.idle_timeout_seconds", message, f"set {2 * first} or more", idle, f"more than {first}")
        elif idle < last:
            message = f"cuts answers that are not streamed: {longest} of silence"
            fix = f"nothing, if clients stream; else set {last}" if last <= _MOST_IDLE else "let clients stream long answers"
            yield Problem(f"{path}.routing.gateway.idle_timeout_seconds", message, fix, idle, f"{last} or more", Level.INFO)


_MOST_IDLE: Final = 6000
"""Seconds that a network load balancer waits at most."""


@check(
    "LLR007", "A priority is what requests say", level=Level.INFO,
    why="The router reads the priority of the objective that a request names in a header, and takes 0 for all others. Behind a Gateway no "
        "proxy of ours can add headers before the router is asked, so the latency objectives reach it from clients alone.",
    link="https://llm-d.ai/docs/0.9/architecture/core/router/epp/flow-control",
)  # fmt: skip
def priority(environment: Environment, _: Context) -> Iterator[Problem]:
    """Name the headers."""
    headers = picker_facts().headers
    for path, endpoint in _endpoints(environment):
        if endpoint.objectives.priority is not None and endpoint.routing.gateway:
            message = f"is that of requests with the header {headers.objective}: {endpoint.name}; of equal ones, {headers.ttft} decides"
            fix = (
                f"let whom you trust set the headers; {headers.itl} moves nothing without a predictor of latencies, which is not installed"
            )
            yield Problem(f"{path}.objectives.priority", message, fix, endpoint.objectives.priority)


@check(
    "LLR008", "The router has a node",
    why="The router and its tokenizer run on nodes without GPUs, whose CPUs feed no engine. Without room there they stay Pending while the "
        "GPUs are billed; without such nodes they take CPUs from workers that ask for whole nodes, and may find none.",
    link=_PAGE,
)  # fmt: skip
def room(environment: Environment, context: Context) -> Iterator[Problem]:  # noqa: ARG001
    """Pack the pods of all routers on the nodes without GPUs, those of one group after another."""
    wanted = [
        PodKind(f"{endpoint.name} {pod.name}", PodShape(0, 0, pod.cpus, pod.memory_gib), pod.count)
        for _path, endpoint in _endpoints(environment)
        for pod in router_pods(endpoint)
    ]
    plain = [(name, group.count, node_room(instance)) for name, group, instance in groups(environment) if not instance.gpus]
    if not wanted:
        return
    if not any(count for _, count, _ in plain):
        message = f"no group without GPUs has nodes for {', '.join(kind.name for kind in wanted)}"
        yield Problem("cluster.groups", message, "add a group such as system: {instance_type: ml.c5.4xlarge, count: 2}")
        return
    left = wanted
    for _, count, space in plain:
        left = list(pack(left, space, count).left)
    for kind in left:
        most = max((space for _, count, space in plain if count), key=lambda space: space[2])
        short = exceeding(kind.needs, most)
        each = f"{kind.shape.cpus} CPUs and {kind.shape.memory_gib} GiB"
        message = f"{kind.count} x {kind.name} with {each} {'fits no node: ' + ', '.join(short) if short else 'finds no room'}"
        fix = "use a larger type" if short else f"add nodes to {', '.join(name for name, _, _ in plain)}"
        yield Problem(f"cluster.groups.{plain[0][0]}", message, fix)


@check(
    "LLR009", "The router hears of blocks from every rank",
    why="Ranks of a spread model publish events at ports that count through the whole group, and the router listens at ports that count "
        "anew in each pod. It hears nothing of pods after the first, and takes what it hears for the blocks of one rank.",
    link="https://github.com/llm-d/llm-d-router/issues/2227",
    seen_in=("https://github.com/llm-d/llm-d/pull/2203", "https://github.com/llm-d/llm-d-kv-cache/issues/357"),
)  # fmt: skip
def ranks_events(environment: Environment, _: Context) -> Iterator[Problem]:
    """Refuse exact knowledge of blocks where most of it would be missing."""
    for path, endpoint in _endpoints(environment):
        spread = [name for name, role in endpoint.roles if role.expert_parallel]
        if endpoint.routing.strategy == "kv_aware" and spread:
            message = f"the blocks of most ranks of {' and '.join(spread)} would be unknown to router {pinned()}"
            yield Problem(f"{path}.routing.strategy", message, "use prefix_aware", "kv_aware")


def _arguments(container: Object) -> dict[str, str]:
    given = container.get("args")
    texts = [text for text in given if isinstance(text, str)] if isinstance(given, list) else []
    return {name: value for name, _, value in (text.partition("=") for text in texts)}


@dataclass(frozen=True, slots=True)
class _Picker:
    """An endpoint picker: the object that owns it, its container, and its file as its ConfigMap has it, of whatever form."""

    owner: Object
    container: Object
    content: Any


def _pickers(manifests: Sequence[Object]) -> Iterable[_Picker]:
    """Every endpoint picker among some objects."""
    return manifests.once(_read_pickers) if isinstance(manifests, Objects) else _read_pickers(manifests)


def _read_pickers(manifests: Sequence[Object]) -> Iterator[_Picker]:
    maps = {
        (_metadata(body).get("namespace"), _metadata(body).get("name")): mapping(body.get("data"))
        for body in manifests
        if body.get("kind") == "ConfigMap"
    }
    for body in manifests:
        for _, template in templates(body):
            spec = mapping(template.get("spec"))
            for container in (one for one in spec.get("containers") or () if isinstance(one, dict)):
                if container.get("name") == llmd().containers["picker"]:
                    yield _Picker(body, container, _configuration(maps, body, spec, container))


def _configuration(maps: Mapping[Any, Object], owner: Object, spec: Object, container: Object) -> Any:
    file = _arguments(container).get(_CONFIG_FILE, "").rpartition("/")[2]
    mounted = (mapping(volume.get("configMap")).get("name") for volume in spec.get("volumes") or () if isinstance(volume, dict))
    namespace = _metadata(owner).get("namespace")
    text = next((data[file] for name in mounted if file in (data := maps.get((namespace, name), {}))), None)
    try:
        return None if text is None else yaml.load(str(text), Loader=_LOADER)  # noqa: S506 (it is the safe one)
    except yaml.YAMLError:
        return None


def _read(content: dict[str, Any]) -> "PickerConfig":
    """A router's file. The models take longer to import than most rules to run, and only manifests need them."""
    from dpd.backends.llmd.picker_config import load  # noqa: PLC0415

    return load(content, pinned())


def _metadata(body: Object) -> Mapping[str, Any]:
    found = body.get("metadata")
    return found if isinstance(found, dict) else {}


@manifest_check(
    "LLR020", "The router finds workers of both roles",
    why="The router knows its pods by their labels and by the port on which it sends. A selector that matches none of a role answers every "
        "request with an error, or sends all of them to decoders.",
    link=_PAGE,
    seen_in=("https://github.com/vllm-project/production-stack/issues/747", "https://github.com/llm-d/llm-d-benchmark/pull/878"),
)  # fmt: skip
def finds_workers(manifests: Sequence[Object], groups: Groups) -> Iterator[Problem]:  # noqa: ARG001
    """Compare the router's selector with the labels of pods, and each Service of the router with the router's own."""
    labels = [
        _labels(template) for body in manifests for _, template in templates(body) if llmd().labels["role"] in _labels(template)
    ]  # fmt: skip
    pools = {
        (_metadata(body).get("namespace"), _metadata(body).get("name")): body for body in manifests if body.get("kind") == "InferencePool"
    }
    for picker in _pickers(manifests):
        owner, container = picker.owner, picker.container
        given = _arguments(container)
        pool = pools.get((_metadata(owner).get("namespace"), given.get("--pool-name")))
        selector = (
            dict(part.partition("=")[::2] for part in given["--endpoint-selector"].split(","))
            if "--endpoint-selector" in given
            else _match_labels(pool)
        )
        found = {known[llmd().labels["role"]] for known in labels if selector and selector.items() <= known.items()}
        for role in ("prefill", "decode"):
            if role not in found:
                message = f"the router selects {selector or 'nothing'}, and no {role} pod has these labels"
                yield Problem(f"{where(owner)}: container {container['name']}", message, "select the labels of the workers' pods")


def _labels(template: Object) -> Mapping[str, str]:
    found = _metadata(template).get("labels")
    return found if isinstance(found, dict) else {}


def _match_labels(pool: Object | None) -> Mapping[str, str]:
    spec = (pool or {}).get("spec")
    selector = spec.get("selector") if isinstance(spec, dict) else None
    found = selector.get("matchLabels") if isinstance(selector, dict) else None
    return found if isinstance(found, dict) else {}


@manifest_check(
    "LLR021", "The router's file is one that its version reads",
    why="The file is no Kubernetes resource: nothing looks at it before the router does, and a name that its version does not know ends it "
        "at its start, again and again. A decider without the record that it reads sends every prompt to a decoder alone.",
    link="https://llm-d.ai/docs/0.9/architecture/core/router/epp/configuration",
    seen_in=("https://github.com/modelplaneai/modelplane/issues/175", "https://github.com/llm-d/llm-d/issues/1189"),
)  # fmt: skip
def readable(manifests: Sequence[Object], groups: Groups) -> Iterator[Problem]:  # noqa: ARG001
    """Read every router's file as its version would."""
    for picker in _pickers(manifests):
        container, content = picker.container, picker.content
        path = f"{where(picker.owner)}: container {container['name']}"
        if not isinstance(content, dict):
            yield Problem(path, "has no configuration file in a ConfigMap that it mounts", "mount the ConfigMap with the router's file")
            continue
        try:
            config = _read(content)
        except ValueError as error:
            yield Problem(path, f"router {pinned()} refuses its file: {_reason(error)}", "use what this version knows")
            continue
        if config.alpha() and _arguments(container).get("--allow-experimental-plugins", "false") == "false":
            message = f"makes experimental plugins only when it is told to: {', '.join(config.alpha())}"
            yield Problem(path, message, "add --allow-experimental-plugins=true")
        yield from (Problem(path, fault, "see the fix of the fault") for fault in config.idle_faults())


def _reason(error: ValueError) -> str:
    lines = [line.strip() for line in str(error).splitlines() if line.startswith("  ") and "For further information" not in line]
    return "; ".join(line.partition(" [type=")[0].removeprefix("Value error, ") for line in lines) or str(error)


@manifest_check(
    "LLR022", "Routers side by side know the same",
    why="What a router remembers of its own decisions another does not know: prefixes, requests on their way, sessions that wait. Two of "
        "them halve the hits, and send one pod too much.",
    link="https://github.com/llm-d/llm-d-router/blob/v0.10.0/docs/operations.md",
)  # fmt: skip
def alone(manifests: Sequence[Object], groups: Groups) -> Iterator[Problem]:  # noqa: ARG001
    """Look for several routers whose file depends on what one of them has seen."""
    for picker in _pickers(manifests):
        owner, content = picker.owner, picker.content
        number = mapping(owner.get("spec")).get("replicas", 1)
        if not isinstance(number, int) or number < _SEVERAL or not isinstance(content, dict):
            continue
        try:
            private = _read(content).private_state()
        except ValueError:
            continue  # the rule about the file says so
        if private:
            message = f"{number} routers decide by what each of them alone has seen: {', '.join(private)}"
            yield Problem(f"{where(owner)}: spec.replicas", message, "run one, or use kv_aware routing", number, "1")


_SEVERAL: Final = 2
