"""Rules about what runs in the pods: vLLM's arguments, environment variables, and the image."""

from collections.abc import Iterator
from typing import Final

from dpd.backends.arguments import Argument, Arguments, parse
from dpd.backends.emitted import flag_of
from dpd.backends.site import Site
from dpd.backends.workload import derived_environment
from dpd.catalog import engines, images, runtime_versions, vllm_flags
from dpd.catalog.llmd import llmd
from dpd.checks.registry import Context, Problem, check
from dpd.checks.variables import all_faults
from dpd.environment.endpoint import Endpoint, Role
from dpd.environment.environment import Environment
from dpd.finding import Level
from dpd.sizing.pod import pod_shape

_VLLM: Final = "https://docs.vllm.ai/en/latest/cli/serve/"
_DPD: Final = "https://docs.aws.amazon.com/sagemaker/latest/dg/sagemaker-hyperpod-model-deployment-dpd.html"
_MAKER: Final = {"operator": "AWS", "llm-d": "llm-d"}
"""Who says which images a backend works with."""
_EFA: Final = "https://docs.aws.amazon.com/eks/latest/userguide/node-efa.html"


def _endpoints(environment: Environment) -> Iterator[tuple[str, Endpoint]]:
    for index, endpoint in enumerate(environment.endpoints):
        yield f"endpoints[{index}]", endpoint


def _roles(environment: Environment) -> Iterator[tuple[str, Endpoint, Role, Arguments]]:
    """Every role with the path of its ``extra_args`` and what they parse to."""
    for path, endpoint in _endpoints(environment):
        for name, role in endpoint.roles:
            if role.extra_args:
                yield f"{path}.{name}.extra_args", endpoint, role, parse(role.extra_args)


def _arguments(environment: Environment) -> Iterator[tuple[str, Endpoint, Role, Argument]]:
    for path, endpoint, role, arguments in _roles(environment):
        for argument in arguments.known:
            yield f"{path}[{argument.index}]", endpoint, role, argument


def _vllm_version(endpoint: Endpoint) -> str:
    return (endpoint.image or images.default_image(endpoint.backend)).vllm


@check(
    "RUN001", "Every extra argument is a flag with its values",
    why="Each item becomes one argument. A flag and its value in one item, or a value without a flag, makes vLLM exit, "
    "on billed nodes.",
    link=_VLLM,
)  # fmt: skip
def shape(environment: Environment, _: Context) -> Iterator[Problem]:
    """Refuse items that no flag precedes, and flags that share an item with their value."""
    for path, _endpoint, role, arguments in _roles(environment):
        for index in arguments.strays:
            text = role.extra_args[index]
            joined = text.startswith("-")
            yield Problem(
                path=f"{path}[{index}]",
                message="holds a flag and its value in one item" if joined else "is a value without a flag in front",
                value=text,
                limit="one flag or one value an item",
                fix="write two items" if joined else "write the flag first, such as --seed",
            )


@check(
    "RUN002", "Extra arguments do not repeat what the file says",
    why="The same number typed twice disagrees one day: the GPUs that are requested and the tensor parallel size, for example.",
    link=_VLLM,
    seen_in=("https://github.com/llm-d/llm-d/pull/1101", "https://github.com/llm-d/llm-d/issues/575"),
)  # fmt: skip
def managed(environment: Environment, _: Context) -> Iterator[Problem]:
    """Refuse every spelling of a flag that follows from a field."""
    fields = vllm_flags.reasons("managed")
    for path, _endpoint, _role, argument in _arguments(environment):
        if argument.base in fields:
            said = fields[argument.base]
            yield Problem(
                path=path,
                message=f"repeats {argument.base}, which this tool derives from {said}",
                value=argument.flag,
                fix="remove it" if said.startswith("nothing") else f"remove it, and set {said}",
            )


@check(
    "RUN003", "Extra arguments do not undo the hand-over",
    why="Connector, proxy and probes are wired for each role. A flag that replaces one of them leaves an endpoint that answers "
    "health checks and recomputes or refuses every prompt.",
    link=_DPD,
    seen_in=("https://github.com/LMCache/LMCache/issues/2511",),
)  # fmt: skip
def refused(environment: Environment, _: Context) -> Iterator[Problem]:
    """Refuse flags that belong to the hand-over, and flags or values with which nothing useful is served."""
    reasons, values = vllm_flags.reasons("refused"), vllm_flags.refused_values()
    for path, _endpoint, _role, argument in _arguments(environment):
        chosen = next((value for value in argument.values if value in values.get(argument.base, {})), None)
        if argument.base in reasons:
            yield Problem(path=path, message=reasons[argument.base], value=argument.flag, fix="remove it")
        elif chosen:
            yield Problem(path=path, message=values[argument.base][chosen], value=f"{argument.flag} {chosen}", fix="remove it")


@check(
    "RUN004", "vLLM knows every extra argument",
    why="vLLM exits at start when it meets a flag it does not know.",
    link=_VLLM,
)  # fmt: skip
def unknown(environment: Environment, _: Context) -> Iterator[Problem]:
    """Compare with the flags of the image's vLLM version, or of the nearest that is known: then as a warning."""
    for path, endpoint, _role, argument in _arguments(environment):
        known = engines.lists("vllm", _vllm_version(endpoint))
        if flag_of(argument, known):
            continue
        nearest = (
            "which the image carries" if known.exact else f"the nearest to the image's {_vllm_version(endpoint)} whose flags are known"
        )
        yield Problem(
            path=path,
            message=f"is not a flag of {known.title}, {nearest}",
            value=argument.flag,
            fix=known.advice("flags", argument.base),
            level=None if known.exact else Level.WARNING,
        )


@check(
    "RUN005", "A pod has as many GPUs as vLLM uses",
    why="A pod requests one GPU for each tensor parallel rank. Pipeline or data parallel ranks on top find no GPU, "
    "and vLLM does not start.",
    link="https://docs.vllm.ai/en/latest/serving/parallelism_scaling/",
)  # fmt: skip
def gpus(environment: Environment, _: Context) -> Iterator[Problem]:
    """Refuse parallelism that multiplies the GPUs of a pod."""
    for path, _endpoint, role, argument in _arguments(environment):
        if argument.flag in vllm_flags.named("multiply_gpus") and argument.values != ("1",):
            yield Problem(
                path=path,
                message=f"multiplies the GPUs of a pod, which has {role.tensor_parallel}",
                value=" ".join((argument.flag, *argument.values)),
                limit="1",
                fix="remove it, and set tensor_parallel or replicas",
            )


@check(
    "RUN006", "Both roles make the same KV cache",
    why="KV that one role wrote is read by the other. Another data type, quantization, layout or hash makes the "
    "hand-over fail or, worse, miss.",
    link="https://docs.vllm.ai/en/latest/features/disagg_prefill/",
    seen_in=("https://github.com/vllm-project/vllm/issues/42895",),
)  # fmt: skip
def same_cache(environment: Environment, _: Context) -> Iterator[Problem]:
    """Refuse flags about the cache that only one role has, or that differ."""
    for path, endpoint in _endpoints(environment):
        prefill, decode = ({item.base: item for item in parse(role.extra_args).known} for _name, role in endpoint.roles)
        for flag in sorted(vllm_flags.named("same_in_both_roles") & (prefill.keys() | decode.keys())):
            one, other = prefill.get(flag), decode.get(flag)
            if one and other and (one.flag, one.values) == (other.flag, other.values):
                continue
            name, item = ("prefill", one) if one else ("decode", other)
            assert item is not None
            yield Problem(
                path=f"{path}.{name}.extra_args[{item.index}]",
                message=f"{flag} is not the same in both roles",
                value=" ".join((item.flag, *item.values)),
                fix="give both roles the same, or neither",
            )


@check(
    "RUN007", "Environment variables with an owner keep their values",
    why="The hand-over needs these values in all pods: with other hash seeds no KV is ever found, with other roles nothing is sent.",
    link=_DPD,
    seen_in=("https://github.com/LMCache/LMCache/issues/2979", "https://github.com/LMCache/LMCache/issues/2511"),
)  # fmt: skip
def owned_variables(environment: Environment, _: Context) -> Iterator[Problem]:
    """Refuse other values than the derived ones."""
    for path, endpoint in _endpoints(environment):
        derived = derived_environment(endpoint, efa=True) if endpoint.backend == "operator" else {}
        for name, value in endpoint.environment.items():
            reason = runtime_versions.owner_reason(name) if endpoint.backend == "operator" else llmd().owner_reason(name)
            if reason and value != derived.get(name):
                yield Problem(
                    path=f"{path}.environment.{name}",
                    message=f"is set by this tool{' or the operator' if endpoint.backend == 'operator' else ''}: {reason}",
                    value=value if isinstance(value, str) else f"key {value.key} of Secret {value.secret}",
                    limit=derived.get(name, ""),
                    fix="remove it",
                )


@check(
    "RUN008", "Network variables fit the pod",
    why="libfabric falls back to TCP in silence when it finds no EFA device, dies when it may not allocate huge pages, and NCCL hangs "
    "on an interface that leads nowhere.",
    link=_EFA,
    seen_in=(
        "https://github.com/awslabs/ai-on-sagemaker-hyperpod/pull/134",
        "https://github.com/aws/karpenter-provider-aws/issues/6296",
        "https://github.com/awslabs/awsome-distributed-ai/pull/1240",
        "https://github.com/aws-samples/aws-do-eks/issues/54",
        "https://github.com/awslabs/awsome-distributed-ai/issues/519",
        "https://github.com/vllm-project/vllm/issues/41814",
        "https://github.com/volcano-sh/kthena/issues/503",
        "https://github.com/vllm-project/vllm/issues/27083",
    ),
)  # fmt: skip
def network_variables(environment: Environment, _: Context) -> Iterator[Problem]:
    """Compare libfabric's, NIXL's and NCCL's settings with the devices that the pods get."""
    site = Site.of(environment)
    for path, endpoint in _endpoints(environment):
        variables = {name: value for name, value in endpoint.environment.items() if isinstance(value, str)}
        shapes = [pod_shape(role, instance) for _name, role in endpoint.roles if (instance := site.instance(role.group))]
        if not variables or not shapes:
            continue
        fewest = min(shape.efa_devices for shape in shapes)
        for fault in all_faults(variables, efa_devices=fewest, huge_pages_requested=_requests_huge_pages(endpoint)):
            yield Problem(
                path=f"{path}.environment.{fault.variable}", message=fault.message, value=variables.get(fault.variable), fix=fault.fix
            )


def _requests_huge_pages(endpoint: Endpoint) -> bool:
    """Whether both roles request huge pages, by their own word or by the raw escape."""
    if all(role.hugepages_mib for _name, role in endpoint.roles):
        return True
    resource = str(runtime_versions.huge_pages()["resource"])
    pd_spec = endpoint.raw.spec.get("pdSpec")
    roles = [pd_spec.get(name) for name in ("prefillSpec", "decodingSpec")] if isinstance(pd_spec, dict) else [None]
    return all(resource in str(role.get("resources", {})) if isinstance(role, dict) else False for role in roles)


@check(
    "RUN009", "The image carries what the hand-over needs",
    why="The hand-over needs vLLM, NIXL and the EFA provider of libfabric in the image, and with the operator LMCache. Without one of "
    "them both roles start, and each works alone.",
    link=_DPD,
)  # fmt: skip
def image(environment: Environment, _: Context) -> Iterator[Problem]:
    """Refuse images that are known to lack a part; warn of ones that nobody names for the backend."""
    for path, endpoint in _endpoints(environment):
        if endpoint.image is None:
            continue
        default = images.default_image(endpoint.backend)
        known = images.find(endpoint.image.repository, endpoint.image.tag)
        if known is not None and known.role == "unusable":
            yield Problem(
                path=f"{path}.image.repository",
                message=known.why,
                value=endpoint.image.repository,
                fix=f"use {default.repository}:{default.tag}",
            )
        elif known is None and not endpoint.image.repository.endswith(f"/{default.repository.rpartition('/')[2]}"):
            yield Problem(
                path=f"{path}.image.repository",
                message=f"is not an image that {_MAKER[endpoint.backend]} names for disaggregation; nobody has stated that the roles can "
                "hand over in it",
                value=f"{endpoint.image.repository}:{endpoint.image.tag}",
                fix=f"use {default.repository}:{default.tag}, or prove yours with the smoke test",
                level=Level.WARNING,
            )


@check(
    "RUN010", "The image is what its versions say",
    why="Some mixes of vLLM, LMCache and NIXL fail in the hand-over although each part works. A catalogued image carries fixed versions.",
    link=_DPD,
    seen_in=("https://github.com/vllm-project/vllm/issues/27055",),
)  # fmt: skip
def versions(environment: Environment, _: Context) -> Iterator[Problem]:
    """Refuse stated versions that a known image contradicts; warn of mixes that are known to fail or not documented."""
    for path, endpoint in _endpoints(environment):
        if endpoint.image is None:
            continue
        documented = images.default_image(endpoint.backend)
        stated = {part: version for part in ("vllm", "lmcache", "nixl") if (version := getattr(endpoint.image, part))}
        said = ", ".join(f"{part} {version}" for part, version in stated.items())
        known = images.find(endpoint.image.repository, endpoint.image.tag)
        if known is not None and known.role != "unusable":
            for part, version in stated.items():
                if getattr(known, part) not in ("", version):
                    yield Problem(
                        path=f"{path}.image.{part}",
                        message=f"the image carries another {part}",
                        value=version,
                        limit=str(getattr(known, part)),
                        fix=f"write {getattr(known, part)}",
                    )
        failing = next((mix for mix in runtime_versions.known_to_fail() if _matches(mix, stated)), None)
        if failing is not None:
            yield Problem(
                path=f"{path}.image",
                message=f"with these versions {failing['symptom']} ({failing['link']})",
                value=said,
                fix=f"use {', '.join(f'{part} {getattr(documented, part)}' for part in stated)}",
            )
        elif known is None and any(version != getattr(documented, part) for part, version in stated.items()):
            yield Problem(
                path=f"{path}.image",
                message=f"is a mix that {_MAKER[endpoint.backend]} does not document",
                value=said,
                limit=", ".join(f"{part} {getattr(documented, part)}" for part in stated),
                fix="prove the hand-over with the smoke test before you rely on it",
                level=Level.WARNING,
            )


def _matches(mix: dict[str, str], stated: dict[str, str]) -> bool:
    return all(f"{stated[part]}.".startswith(f"{mix[part]}.") for part in stated if part in mix)


@check(
    "RUN011", "The image is pinned by its digest",
    why="A tag can move. Pods that start on different days would then run different software, and their KV caches may not match.",
    link="https://kubernetes.io/docs/concepts/containers/images/#image-names",
    level=Level.INFO,
)  # fmt: skip
def pinned(environment: Environment, _: Context) -> Iterator[Problem]:
    """Say how to pin; warn of tags that are made to move."""
    for path, endpoint in _endpoints(environment):
        image = endpoint.image or images.default_image(endpoint.backend)
        if image.digest:
            continue
        tag, repository = image.tag, image.repository
        moving = tag in {"latest", "nightly", "main", "edge", "stable"}
        yield Problem(
            path=f"{path}.image",
            message=f"{'the tag is made to move' if moving else 'no digest pins the image'}",
            value=f"{repository}:{tag}",
            fix=f"docker buildx imagetools inspect {repository}:{tag} prints the digest; write it to image.digest",
            level=Level.WARNING if moving else None,
        )
