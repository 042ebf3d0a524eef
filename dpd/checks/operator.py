"""Rules of the HyperPod inference operator."""

from collections.abc import Iterator
from typing import Any, Final

from dpd.backends.backend import backend
from dpd.backends.site import Site
from dpd.catalog import images
from dpd.catalog.operator import operator
from dpd.checks.registry import Context, Problem, check
from dpd.environment.endpoint import Autoscaling, Endpoint, Role, is_workspace
from dpd.environment.environment import Environment
from dpd.environment.yaml_file import dotted
from dpd.finding import Level
from dpd.sizing.startup import startup_budget_seconds

_DPD: Final = "https://docs.aws.amazon.com/sagemaker/latest/dg/sagemaker-hyperpod-model-deployment-dpd.html"
_BLOG: Final = "https://aws.amazon.com/blogs/machine-learning/disaggregated-prefill-and-decode-for-llm-inference-on-sagemaker-hyperpod/"
_CACHE: Final = "https://docs.aws.amazon.com/sagemaker/latest/dg/sagemaker-hyperpod-model-deployment-caching-routing.html"
_GATEWAY: Final = "https://docs.aws.amazon.com/sagemaker/latest/dg/sagemaker-hyperpod-model-deployment-inference-gateway.html"
_SCALING: Final = "https://docs.aws.amazon.com/sagemaker/latest/dg/sagemaker-hyperpod-model-deployment-autoscaling.html"
_CERTIFICATES: Final = "https://docs.aws.amazon.com/sagemaker/latest/dg/sagemaker-hyperpod-model-deployment-custom-certs.html"
_NOTES: Final = "https://docs.aws.amazon.com/sagemaker/latest/dg/sagemaker-hyperpod-inference-release-notes.html"


def _endpoints(environment: Environment) -> Iterator[tuple[str, Endpoint]]:
    for index, endpoint in enumerate(environment.endpoints):
        if endpoint.backend == "operator":
            yield f"endpoints[{index}]", endpoint


def _scaled(environment: Environment) -> Iterator[tuple[str, str, Role, Autoscaling]]:
    """Every role that scales, of any backend: KEDA does it for all."""
    for index, endpoint in enumerate(environment.endpoints):
        for name, role in endpoint.roles:
            if role.autoscaling is not None:
                yield f"endpoints[{index}].{name}", name, role, role.autoscaling


def _number(version: str) -> tuple[int, ...]:
    return tuple(int(part) for part in version.split("."))


@check(
    "OPR001", "kv_aware routing serves completions only",
    why="The router looks prompts up in the KV index by their tokens. For chat requests it finds nothing, and spreads them at random.",
    link=_CACHE,
)  # fmt: skip
def kv_aware_path(environment: Environment, _: Context) -> Iterator[Problem]:
    """Refuse kv_aware with the chat path."""
    for path, endpoint in _endpoints(environment):
        if endpoint.routing.strategy == "kv_aware" and endpoint.routing.api != operator().kv_aware["api"]:
            yield Problem(
                path=f"{path}.routing.strategy",
                message=f"kv_aware works with completions, not with {endpoint.routing.api}",
                value=endpoint.routing.strategy,
                fix="use prefix_aware or session, or set routing.api: completions",
            )


@check(
    "OPR002", "kv_aware routing needs matching versions",
    why="Workers register their KV with the router through LMCache. With other versions they never register, and the router finds "
    "no worker.",
    link=_CACHE,
)  # fmt: skip
def kv_aware_versions(environment: Environment, _: Context) -> Iterator[Problem]:
    """Compare the image's vLLM and LMCache with what the guide states."""
    facts = operator().kv_aware
    floor, pair = facts["at_least"], facts["exactly"]
    default = images.default_image()
    for path, endpoint in _endpoints(environment):
        if endpoint.routing.strategy != "kv_aware":
            continue
        chosen = endpoint.image or default
        if chosen.lmcache is None:
            continue  # said by BCK007
        new = all(_number(getattr(chosen, part)) >= _number(floor[part]) for part in floor)
        old = all(getattr(chosen, part) == pair[part] for part in pair)
        if not new and not old:
            yield Problem(
                path=f"{path}.routing.strategy",
                message="the image's versions are outside of what kv_aware works with",
                value=f"vLLM {chosen.vllm}, LMCache {chosen.lmcache}",
                limit=f"vLLM {floor['vllm']} and LMCache {floor['lmcache']} or newer, or exactly vLLM {pair['vllm']} and LMCache "
                f"{pair['lmcache']}",
                fix="use prefix_aware, or name an image with these versions in image",
            )


@check(
    "OPR003", "The Inference Gateway does not front a disaggregated endpoint",
    why="The operator refuses a resource with both the gateway and intelligent routing, and disaggregation is routed by the latter.",
    link=_GATEWAY,
)  # fmt: skip
def gateway(environment: Environment, _: Context) -> Iterator[Problem]:
    """Refuse the gateway, whether by its own field or by the raw escape."""
    for path, endpoint in _endpoints(environment):
        raw = endpoint.raw.spec.get("inferenceGateway")
        given = {
            f"{path}.routing.inference_gateway": endpoint.routing.inference_gateway,
            f"{path}.raw.spec.inferenceGateway.enabled": isinstance(raw, dict) and raw.get("enabled", False),
        }
        for place, on in given.items():
            if on:
                yield Problem(
                    path=place,
                    message="the gateway and intelligent routing exclude each other, and the prefill/decode router needs the latter",
                    value=True,
                    fix="set it to false, or leave it out",
                )


@check(
    "OPR004", "One decode replica an endpoint",
    why="AWS contradicts itself. The guide's limits say that an endpoint has a single decode deployment and that more are planned, "
    "the announcement "
    "says one decoder replica today, and the guide's tuning and troubleshooting pages advise to raise decodingSpec.replicas. A router "
    "that knows one decoder leaves the other ones idle, billed.",
    link=_DPD,
    level=Level.WARNING,
    seen_in=(_BLOG,),
)  # fmt: skip
def decoders(environment: Environment, _: Context) -> Iterator[Problem]:
    """Warn of several decoders, now or after scaling."""
    for path, endpoint in _endpoints(environment):
        most = backend(endpoint.backend).capabilities.decode_replicas or endpoint.decode.replicas
        scaled = endpoint.decode.autoscaling
        for place, count in (
            (f"{path}.decode.replicas", endpoint.decode.replicas),
            (f"{path}.decode.autoscaling.max_replicas", scaled.max_replicas if scaled else 1),
        ):
            if count > most:
                yield Problem(
                    path=place,
                    message="AWS's documents contradict each other on more than one decoder: the limits and the announcement allow one, "
                    "the tuning page advises to add some",
                    value=count,
                    limit=str(most),
                    fix="keep one decoder and add endpoints, or prove on your cluster that every decoder gets traffic and acknowledge this",
                )


@check(
    "OPR005", "The routing strategy suits several prefillers",
    why="prefix_aware sends equal beginnings to one pod. With several prefillers and few prefixes (one system prompt) one of them "
    "gets all the work.",
    link=_DPD,
    level=Level.INFO,
    seen_in=(_BLOG,),
)  # fmt: skip
def several_prefillers(environment: Environment, _: Context) -> Iterator[Problem]:
    """Name the alternatives that AWS states."""
    for path, endpoint in _endpoints(environment):
        scaled = endpoint.prefill.autoscaling
        most = max(endpoint.prefill.replicas, scaled.max_replicas if scaled else 0)
        if most > 1 and endpoint.routing.strategy == "prefix_aware":
            yield Problem(
                path=f"{path}.routing.strategy",
                message=f"there are up to {most} prefillers; the guide then advises round_robin, the announcement session for chats and "
                "kv_aware for shared prefixes",
                value=endpoint.routing.strategy,
                fix="measure with your prompts; keep prefix_aware when they share many different prefixes",
            )


@check(
    "OPR006", "Raw fields are in the resource's schema",
    why="The API server drops fields that the installed schema does not have, without an error, so a misspelt field does nothing.",
    link=_NOTES,
)  # fmt: skip
def raw_unknown(environment: Environment, _: Context) -> Iterator[Problem]:
    """Refuse unknown fields unless the file says why they are expected."""
    for path, endpoint, faults in _raw(environment):
        unknown = [fault for fault in faults if fault.unknown]
        reason = endpoint.raw.unknown_fields_reason
        if reason and not unknown:
            yield Problem(
                path=f"{path}.raw.unknown_fields_reason",
                message="explains unknown fields, and there is none",
                value=reason,
                fix="remove it",
                level=Level.WARNING,
            )
        for fault in unknown if not reason else ():
            field = str(fault.place[-1])
            since = operator().newer_fields.get(field)
            yield Problem(
                path=f"{path}.raw.spec.{dotted(fault.place)}",
                message=f"came with operator {since}, later than the schema this tool has" if since else "is not a field of the resource",
                value=field,
                fix="check that the cluster's operator has it, and say so in raw.unknown_fields_reason"
                if since
                else "correct its name, or say in raw.unknown_fields_reason why the cluster has it",
            )


@check(
    "OPR007", "Raw fields have legal values",
    why="The API server refuses the resource, or the operator does later, with the nodes already running.",
    link=_NOTES,
)  # fmt: skip
def raw_illegal(environment: Environment, _: Context) -> Iterator[Problem]:
    """Check the whole resource again with the raw fields merged in."""
    for path, endpoint, faults in _raw(environment):
        for fault in faults:
            if not fault.unknown:
                place, value = _inside(fault.place, endpoint.raw.spec)
                yield Problem(
                    path=f"{path}.raw.spec{'.' if place else ''}{dotted(place)}",
                    message=fault.message if place == fault.place else f"{dotted(fault.place) or 'spec'}: {fault.message}",
                    value=value if isinstance(value, str | int | float | bool) else None,
                    fix="correct the value, or remove it",
                )


@check(
    "OPR008", "Raw fields do not contradict the file",
    why="The other checks read the file's own fields. What a raw field replaces is no longer what they looked at: capacity, addresses "
    "and the way of the KV cache are then those of another system.",
    link=_DPD,
    level=Level.WARNING,
)  # fmt: skip
def raw_override(environment: Environment, _: Context) -> Iterator[Problem]:
    """Refuse fields that the file has a word for, and name every other derived field that a raw field changes."""
    for path, endpoint in _endpoints(environment):
        derived = _derived(environment, endpoint)
        said: set[tuple[str, ...]] = set()
        for place, word, ours, theirs in _worded(operator().raw_words, derived, endpoint.raw.spec) if derived else ():
            if ours != theirs:
                said.add(place)
                nothing = word.startswith("nothing")
                yield Problem(
                    path=f"{path}.raw.spec.{dotted(place)}",
                    message=f"is set by {word}" if nothing else f"is {word}, which the checks read",
                    value=theirs if isinstance(theirs, str | int | float | bool) else None,
                    fix="remove it" if nothing else f"remove it, and set {word}",
                    level=Level.ERROR,
                )
        for place, ours, theirs in _changed(derived, endpoint.raw.spec):
            if any(place[: len(other)] == other for other in said):
                continue
            several = isinstance(ours, list | dict)
            yield Problem(
                path=f"{path}.raw.spec.{dotted(place)}",
                message="replaces the whole list that this tool derives" if several else f"replaces {ours!r}, which this tool derives",
                value=theirs if isinstance(theirs, str | int | float | bool) else None,
                fix="set the field of the environment file that it follows from, or acknowledge this with the reason",
            )


def _derived(environment: Environment, endpoint: Endpoint) -> dict[str, Any]:
    """The ``spec`` without the raw fields; empty when it cannot be built, which other rules report."""
    if not endpoint.raw.spec:
        return {}
    # Building these types takes longer than all other checks together, and only raw fields need them.
    from dpd.backends.operator.build import spec  # noqa: PLC0415

    try:
        return spec(endpoint, Site.of(environment)).body()
    except ValueError:
        return {}


def _raw(environment: Environment) -> Iterator[tuple[str, Endpoint, list[Any]]]:
    """Endpoints with raw fields or a reason for them, and what is wrong with their resource."""
    for path, endpoint in _endpoints(environment):
        derived = _derived(environment, endpoint)
        if derived:
            from dpd.backends.operator.build import merged  # noqa: PLC0415 (as above)
            from dpd.backends.operator.resource import faults  # noqa: PLC0415

            yield path, endpoint, faults(merged(derived, endpoint.raw.spec))
        elif endpoint.raw.unknown_fields_reason and not endpoint.raw.spec:
            yield path, endpoint, []


def _inside(place: tuple[str | int, ...], content: Any) -> tuple[tuple[str | int, ...], Any]:
    """The longest beginning of a place that exists in some content, and what stands there."""
    found: list[str | int] = []
    for part in place:
        known = content.get(part) if isinstance(content, dict) else None
        if isinstance(content, list) and isinstance(part, int) and part < len(content):
            known = content[part]
        if known is None:
            break
        found.append(part)
        content = known
    return tuple(found), content


def _worded(words: Any, ours: Any, theirs: Any, place: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...], str, Any, Any]]:
    """Raw fields that stand in the tree of words: place, word, what is derived and what is raw, without what both agree on."""
    if isinstance(words, dict) and ours is None and "" in words:
        words = words[""]
    if isinstance(words, str):
        both = isinstance(ours, dict) and isinstance(theirs, dict)
        yield place, words, {key: ours.get(key) for key in theirs} if both else ours, theirs
    elif isinstance(theirs, dict):
        for key in theirs:
            if key in words:
                yield from _worded(words[key], ours.get(key) if isinstance(ours, dict) else None, theirs[key], (*place, str(key)))


def _changed(ours: Any, theirs: Any, place: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...], Any, Any]]:
    """Places where both have a value and the values differ, down to what a merge replaces whole."""
    if isinstance(ours, dict) and isinstance(theirs, dict):
        for key in theirs:
            if key in ours:
                yield from _changed(ours[key], theirs[key], (*place, str(key)))
    elif ours != theirs:
        yield place, ours, theirs


@check(
    "OPR009", "Autoscaling keeps a decoder, and knows when to scale",
    why="Without a decoder nothing is answered, and the pods' own metrics cannot wake what does not run. Without a trigger nothing "
    "ever scales.",
    link=_SCALING,
)  # fmt: skip
def scaling_bounds(environment: Environment, _: Context) -> Iterator[Problem]:
    """Check bounds and triggers of every scaled role."""
    for path, name, role, scaling in _scaled(environment):
        place = f"{path}.autoscaling"
        if scaling.min_replicas > scaling.max_replicas:
            yield Problem(
                path=f"{place}.min_replicas", message="is more than max_replicas", value=scaling.min_replicas,
                limit=f"at most {scaling.max_replicas}", fix="lower min_replicas or raise max_replicas",
            )  # fmt: skip
        if scaling.min_replicas == 0:
            decode = name == "decode"
            yield Problem(
                path=f"{place}.min_replicas",
                message="without a decoder no request is answered" if decode else "without a prefiller long prompts wait until one "
                "has started, "
                "which takes as long as loading the weights",
                value=0,
                limit="at least 1",
                fix="write 1",
                level=None if decode else Level.WARNING,
            )  # fmt: skip
        if not scaling.triggered:
            fix = "add tokens, or a cloudwatch or prometheus trigger, or remove autoscaling"
            yield Problem(path=place, message="has no trigger", fix=fix)
        if not scaling.min_replicas <= role.replicas <= scaling.max_replicas:
            yield Problem(
                path=f"{path}.replicas", message="lies outside of what autoscaling allows, so the first scaling step changes it",
                value=role.replicas, limit=f"{scaling.min_replicas} to {scaling.max_replicas}",
                fix="start inside the bounds", level=Level.WARNING,
            )  # fmt: skip


@check(
    "OPR010", "CloudWatch periods are ones that CloudWatch has",
    why="CloudWatch refuses the query, KEDA logs it, and the role never scales.",
    link="https://docs.aws.amazon.com/AmazonCloudWatch/latest/APIReference/API_MetricStat.html",
)  # fmt: skip
def scaling_periods(environment: Environment, _: Context) -> Iterator[Problem]:
    """Allow 1, 5, 10, 30 and multiples of 60 seconds."""
    short = operator().cloudwatch_periods_seconds
    for path, _name, _role, scaling in _scaled(environment):
        for index, trigger in enumerate(scaling.cloudwatch):
            seconds = trigger.period_seconds
            if seconds not in short and seconds % 60:
                yield Problem(
                    path=f"{path}.autoscaling.cloudwatch[{index}].period_seconds",
                    message="is not a period of CloudWatch",
                    value=seconds,
                    limit=f"{', '.join(map(str, short))} or a multiple of 60",
                    fix=f"write {max(60, round(seconds / 60) * 60)}",
                )


@check(
    "OPR011", "The Prometheus workspace is in the environment's Region",
    why="Queries across Regions add latency and cost to every poll, and stop when the other Region does.",
    link=_SCALING,
    level=Level.WARNING,
)  # fmt: skip
def scaling_workspace(environment: Environment, _: Context) -> Iterator[Problem]:
    """Compare the workspace's Region with the environment's."""
    for path, _name, _role, scaling in _scaled(environment):
        asked = {f"prometheus[{index}].workspace_url": trigger.workspace_url for index, trigger in enumerate(scaling.prometheus)}
        if scaling.tokens and is_workspace(scaling.tokens.prometheus):
            asked["tokens.prometheus"] = scaling.tokens.prometheus
        for place, url in asked.items():
            if f"aps-workspaces.{environment.region}." not in url:
                yield Problem(
                    path=f"{path}.autoscaling.{place}",
                    message="is in another Region",
                    value=url,
                    limit=environment.region,
                    fix=f"use a workspace in {environment.region}",
                )


@check(
    "OPR012", "The certificate can be attached to the load balancer",
    why="A load balancer only takes certificates of its own account and Region, and the operator only reads ARNs of the aws partition.",
    link=_CERTIFICATES,
)  # fmt: skip
def certificate(environment: Environment, _: Context) -> Iterator[Problem]:
    """Compare the certificate's ARN with the environment."""
    for path, endpoint in _endpoints(environment):
        chosen = endpoint.exposure.certificate
        if chosen is None:
            continue
        region, account = chosen.acm_arn.split(":")[3:5]
        for what, found, wanted in (("Region", region, environment.region), ("account", account, environment.account)):
            if found != wanted:
                yield Problem(
                    path=f"{path}.exposure.certificate.acm_arn",
                    message=f"is in another {what}",
                    value=chosen.acm_arn,
                    limit=wanted,
                    fix=f"import or request the certificate in {wanted}",
                )


@check(
    "OPR013", "A shared KV tier keeps tenants apart",
    why="KV is the prompt in another form. Managed tiered storage is one pool for the cluster and is not encrypted at rest, and "
    "redis:// is not "
    "encrypted on the way.",
    link=_CACHE,
    level=Level.WARNING,
)  # fmt: skip
def shared_tier(environment: Environment, _: Context) -> Iterator[Problem]:
    """Warn of namespaces that share the managed tier, and of a Redis without TLS."""
    users = [(path, endpoint) for path, endpoint in _endpoints(environment) if endpoint.kv.shared_tier == "tiered_storage"]
    namespaces = sorted({endpoint.namespace for _path, endpoint in users})
    for path, endpoint in _endpoints(environment):
        tier = endpoint.kv.shared_tier
        if tier == "tiered_storage" and len(namespaces) > 1:
            yield Problem(
                path=f"{path}.kv.shared_tier",
                message=f"endpoints of {len(namespaces)} namespaces ({', '.join(namespaces[:5])}) would keep their KV in one pool, "
                f"unencrypted",
                value=tier,
                fix="use it for one tenant's endpoints only, or accept this with the reason",
            )
        elif tier.startswith("redis://"):
            yield Problem(
                path=f"{path}.kv.shared_tier",
                message="KV travels unencrypted to this Redis",
                value=tier,
                fix=f"use rediss://{tier.removeprefix('redis://')}",
            )


@check(
    "OPR014", "The operator decides how pods are replaced",
    why="Its resource has no field for a rolling update, and AWS documents no strategy. Where a new pod starts before the old one goes, "
    "a group without a spare node holds the update up until somebody deletes a pod.",
    link=_DPD,
    level=Level.WARNING,
    seen_in=("https://github.com/defilantech/LLMKube/issues/192",),
)  # fmt: skip
def rollout(environment: Environment, _: Context) -> Iterator[Problem]:
    """Warn of a setting that does not reach the pods."""
    for path, endpoint in _endpoints(environment):
        for name, role in endpoint.roles:
            if role.max_surge:
                yield Problem(
                    path=f"{path}.{name}.max_surge",
                    message="reaches no pod: InferenceEndpointConfig has no field for it",
                    value=role.max_surge,
                    fix="leave it out; to change a model without a gap, add a second endpoint and move the clients",
                )


@check(
    "OPR015", "The operator waits until the weights are loaded",
    why="When the time is over the operator calls the deployment failed, although its pods are still loading.",
    link=_DPD,
    level=Level.WARNING,
)  # fmt: skip
def patience(environment: Environment, _: Context) -> Iterator[Problem]:
    """Compare deploy_timeout_seconds with what one pod may need to start."""
    for path, endpoint in _endpoints(environment):
        needed, given = startup_budget_seconds(endpoint.model.shape), endpoint.deploy_timeout_seconds
        if given is not None and given < needed:
            yield Problem(
                path=f"{path}.deploy_timeout_seconds",
                message=f"a pod may take {needed:,} seconds to load {endpoint.model.shape.weight_bytes / 2**30:,.0f} GiB and start",
                value=given,
                limit=f"{needed:,} or more",
                fix="leave it out; the default follows from the weights",
            )
