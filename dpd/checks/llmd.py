"""Rules of the llm-d backend: versions that run together, and choices that its workers pay for."""

from collections.abc import Iterator
from typing import Final

from dpd.catalog import images, limits
from dpd.catalog.llmd import llmd
from dpd.checks.registry import Context, Problem, check
from dpd.environment.endpoint import Endpoint
from dpd.environment.environment import Environment
from dpd.finding import Level
from dpd.sizing.startup import startup_budget_seconds

_NIXL: Final = "https://docs.vllm.ai/en/latest/features/nixl_connector_usage/"
_COMPATIBLE: Final = "https://docs.vllm.ai/en/latest/features/nixl_connector_compatibility/"
_RELEASE: Final = "https://github.com/llm-d/llm-d/releases/tag/v0.8.0"
RESOURCES_OF_AN_ENDPOINT: Final = 18
"""Most resources of the endpoints' stack for one of them: three groups of objects, and each object that comes and goes by itself."""
_OTHER_RESOURCES: Final = 100
"""Left for namespaces and for the endpoints of the other backend, which take one each."""


def _endpoints(environment: Environment) -> Iterator[tuple[str, Endpoint]]:
    for index, endpoint in enumerate(environment.endpoints):
        if endpoint.backend == "llm-d":
            yield f"endpoints[{index}]", endpoint


def _number(version: str) -> tuple[int, ...]:
    return tuple(map(int, version.split(".")))


@check(
    "LLD001", "The image is not older than the set of versions that runs together",
    why="Workers, router and their protocol belong together. Before vLLM 0.22 a prefiller frees KV after a fixed time although a decoder "
    "still waits for it, and answers are wrong; older ones lose requests under load. NIXL before 1.0 does not move KV over EFA.",
    link=_COMPATIBLE,
    seen_in=(
        "https://github.com/vllm-project/vllm/issues/27055", "https://github.com/vllm-project/vllm/issues/21570",
        "https://github.com/llm-d/llm-d/issues/187",
    ),
)  # fmt: skip
def versions(environment: Environment, _: Context) -> Iterator[Problem]:
    """Compare the versions in the image with the oldest of the set."""
    for path, endpoint in _endpoints(environment):
        for part in ("vllm", "nixl"):
            stated, known = getattr(endpoint.image, part, ""), llmd().versions[part]
            if stated and _number(stated) < _number(known.oldest):
                yield Problem(
                    f"{path}.image.{part}",
                    f"is older than what this backend's objects need; {known.version} is in the set that its makers ran",
                    f"use an image with {part} {known.oldest} or newer, or leave image out",
                    stated,
                    f"{known.oldest} or newer",
                )


@check(
    "LLD002", "No version in the image has a known fault with EFA",
    why="Such an image starts and serves, until a transfer hangs or a pod restarts.",
    link=_NIXL, level=Level.WARNING,
    seen_in=("https://github.com/ai-dynamo/nixl/issues/1862", "https://github.com/vllm-project/vllm/issues/49238"),
)  # fmt: skip
def faults(environment: Environment, _: Context) -> Iterator[Problem]:
    """Warn of versions that the catalog knows a fault of."""
    for path, endpoint in _endpoints(environment):
        for fault in llmd().faults:
            if getattr(endpoint.image, fault["part"], "") == fault["version"]:
                good = llmd().versions[fault["part"]].version
                fix = f"use {fault['part']} {good}, or prove that your image has the fix"
                yield Problem(f"{path}.image.{fault['part']}", f"{fault['symptom']} ({fault['link']})", fix, fault["version"])


@check(
    "LLD003", "A block of KV holds enough tokens for EFA", level=Level.WARNING,
    why="Every block of every layer is one descriptor to post, about 2.5 microseconds each on EFA, and posting them holds up the decoder. "
    "Blocks of 16 tokens take eight times as long as blocks of 128, and show as jumps between tokens.",
    link=_NIXL,
    seen_in=(
        "https://github.com/ai-dynamo/nixl/issues/1514", "https://github.com/vllm-project/vllm/issues/50913",
        "https://github.com/vllm-project/vllm/issues/55434",
    ),
)  # fmt: skip
def block_size(environment: Environment, _: Context) -> Iterator[Problem]:
    """Warn of small blocks."""
    workers = llmd().more["workers"]
    least, best = workers["least_block_size_tokens"], workers["block_size_tokens"]
    for path, endpoint in _endpoints(environment):
        size = endpoint.kv.block_size
        if size is not None and size < least:
            message = f"a prompt takes {best // size} times the descriptors that it takes with {best}"
            yield Problem(f"{path}.kv.block_size", message, f"use {best}, or leave it out", size, f"{least} or more")


@check(
    "LLD004", "Servers are not privileged without need", level=Level.WARNING,
    why="A privileged container is root on its node: it reads the KV, the weights and the secrets of every other pod there. EFA needs "
    "IPC_LOCK alone, which every server has; only GDRCopy without a device plugin of its own needs more.",
    link="https://kubernetes.io/docs/concepts/security/pod-security-standards/",
)  # fmt: skip
def privileged(environment: Environment, _: Context) -> Iterator[Problem]:
    """Ask for a reason."""
    for path, endpoint in _endpoints(environment):
        for name, role in endpoint.roles:
            if role.privileged:
                fix = "leave it out, or say in an acknowledgement what needs it"
                yield Problem(f"{path}.{name}.privileged", "makes every pod of the role root on its node", fix, value=True)


@check(
    "LLD005", "The nodes' driver is new enough for the image", level=Level.INFO,
    why="The image is built for a CUDA that wants a newer driver than older HyperPod AMIs have. vLLM then ends with a CUDA error when it "
    "starts, on billed nodes.",
    link=_RELEASE,
)  # fmt: skip
def driver(environment: Environment, _: Context) -> Iterator[Problem]:
    """Say which driver the image needs; nothing that is public tells which one an AMI has."""
    need = llmd().driver
    for path, endpoint in _endpoints(environment):
        image = endpoint.image or images.default_image(endpoint.backend)
        known = images.find(image.repository, image.tag)
        if known is not None and known.backend == "llm-d":
            yield Problem(
                f"{path}.image",
                f"is built for CUDA {need['cuda']}, which needs NVIDIA driver {need['least']} or newer on the nodes",
                "see with nvidia-smi on a node of each GPU group, or set cluster.image_release_version to an AMI that has it",
                f"{image.repository}:{image.tag}",
                f"driver {need['least']}",
            )


@check(
    "LLD006", "A deployment waits until the weights are loaded", level=Level.WARNING,
    why="When the time is over Kubernetes calls the roll-out failed, although its pods are still loading.",
    link="https://kubernetes.io/docs/concepts/workloads/controllers/deployment/#progress-deadline-seconds",
)  # fmt: skip
def patience(environment: Environment, _: Context) -> Iterator[Problem]:
    """Compare deploy_timeout_seconds with what one pod may need to start."""
    for path, endpoint in _endpoints(environment):
        needed, given = startup_budget_seconds(endpoint.model.shape), endpoint.deploy_timeout_seconds
        grouped = endpoint.workload == "disaggregated_set" or all(role.expert_parallel for _name, role in endpoint.roles)
        if given is not None and grouped:
            yield Problem(
                f"{path}.deploy_timeout_seconds",
                "reaches nothing: a LeaderWorkerSet has no limit of its own, and waits for its pods for ever",
                "leave it out; the health gate waits as long as the weights take",
                given,
            )
        elif given is not None and given < needed:
            yield Problem(
                f"{path}.deploy_timeout_seconds",
                f"a pod may take {needed:,} seconds to load {endpoint.model.shape.weight_bytes / 2**30:,.0f} GiB and start",
                "leave it out; the default follows from the weights",
                given,
                f"{needed:,} or more",
            )


@check(
    "LLD007", "One stack holds all endpoints",
    why="The stack of the endpoints has a resource for each object that comes and goes, so that none stays behind. CloudFormation refuses "
    "a stack with more resources than its limit.",
    link="https://docs.aws.amazon.com/AWSCloudFormation/latest/UserGuide/cloudformation-limits.html",
)  # fmt: skip
def one_stack(environment: Environment, _: Context) -> Iterator[Problem]:
    """Count the most resources that the endpoints can take."""
    served = list(_endpoints(environment))
    needed, most = len(served) * RESOURCES_OF_AN_ENDPOINT, limits.stack_resources() - _OTHER_RESOURCES
    if needed > most:
        message = f"{len(served)} endpoints x {RESOURCES_OF_AN_ENDPOINT} resources = {needed}"
        fix = (
            "move some of them to a second environment with a cluster of its own, "
            "or apply what `dpd render` writes from a repository and acknowledge this"
        )
        yield Problem("endpoints", message, fix, len(served), f"{most // RESOURCES_OF_AN_ENDPOINT} llm-d endpoints")
