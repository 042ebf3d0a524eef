"""Rules about what the serving software accepts, by the lists of its very versions."""

from collections.abc import Iterator, Sequence
from typing import Final

from dpd.backends.arguments import parse
from dpd.backends.emitted import Unknown, Versions, flag_of, unknown, unknown_argument, unknown_variable
from dpd.backends.site import Site
from dpd.backends.workload import arguments, workload
from dpd.catalog.engines import SOFTWARE, Lists, lists
from dpd.catalog.images import default_image
from dpd.checks.manifests import Groups, Object, manifest_check
from dpd.checks.registry import Context, Problem, check
from dpd.environment.endpoint import Endpoint, Role
from dpd.environment.environment import Environment
from dpd.finding import Level

_VLLM: Final = "https://docs.vllm.ai/en/latest/cli/serve/"
_LMCACHE: Final = "https://docs.lmcache.ai/api_reference/configurations.html"
_KV: Final = "https://docs.vllm.ai/en/latest/features/disagg_prefill/"


def versions(endpoint: Endpoint) -> Versions:
    """What the image of an endpoint carries."""
    image = endpoint.image or default_image(endpoint.backend)
    return Versions(image.vllm, image.lmcache or "")


def _stated(endpoint: Endpoint) -> Iterator[tuple[str, str, Lists]]:
    """The engines of an image with their versions, and the lists that go for them."""
    known = versions(endpoint)
    for software, version in (("vllm", known.vllm), ("lmcache", known.lmcache)):
        if version:
            yield software, version, lists(software, version)


def _problem(found: Unknown, path: str) -> Problem:
    return Problem(path, found.message, found.fix, found.value, level=None if found.certain else Level.WARNING)


@check(
    "ENG001", "The versions in the image are among those whose flags, keys and metrics are known",
    why="Flags, configuration keys and metric names come and go with every release. For a version without a list of its own the "
    "nearest one answers, and what it says may be wrong.",
    link=_VLLM,
    level=Level.WARNING,
)  # fmt: skip
def listed(environment: Environment, _: Context) -> Iterator[Problem]:
    """Name the version whose lists stand in."""
    for index, endpoint in enumerate(environment.endpoints):
        for software, version, known in _stated(endpoint):
            if not known.exact:
                yield Problem(
                    path=f"endpoints[{index}].image.{software}" if endpoint.image else f"endpoints[{index}]",
                    message=f"the catalog has no list of {SOFTWARE[software]} {version}; what is said here of flags, keys and metrics "
                    f"is true of {known.version}",
                    value=version,
                    fix=f"python -m scripts.engine_lists --add {software}={version} reads it from the published wheel",
                )


@check(
    "ENG002", "vLLM takes the values of every extra argument",
    why="vLLM's parser exits on a value that is not one of a flag's choices or not of its type, at the start of pods that are already "
    "billed. Keys of a connector's free configuration it does not look at: a misspelt one is ignored.",
    link=_VLLM,
    seen_in=("https://github.com/vllm-project/vllm/issues/41814",),
)  # fmt: skip
def values(environment: Environment, _: Context) -> Iterator[Problem]:
    """Compare choices, numbers and JSON with the lists of the image's version."""
    for index, endpoint in enumerate(environment.endpoints):
        carried = versions(endpoint)
        known = lists("vllm", carried.vllm)
        for name, role in endpoint.roles:
            for argument in parse(role.extra_args).known:
                if flag_of(argument, known):  # RUN004 speaks of the others
                    place = f"endpoints[{index}].{name}.extra_args[{argument.index}]"
                    yield from (_problem(found, place) for found in unknown_argument(place, argument, known, carried))


@check(
    "ENG003", "vLLM, LMCache and NIXL read the variables that are set for them",
    why="A variable that nothing reads changes nothing, and nobody says so: LMCache, for example, renamed most of its NIXL settings, "
    "and with the old names an endpoint starts without its hand-over.",
    link=_LMCACHE,
    seen_in=("https://github.com/vllm-project/vllm/issues/41814", "https://github.com/LMCache/LMCache/issues/2511"),
)  # fmt: skip
def variables(environment: Environment, _: Context) -> Iterator[Problem]:
    """Compare names that begin like those of an engine with the lists of the image's versions; NIXL's list is not complete."""
    for index, endpoint in enumerate(environment.endpoints):
        carried = versions(endpoint)
        for name in endpoint.environment:
            for found in unknown_variable("", name, carried):
                yield _problem(found, f"endpoints[{index}].environment.{name}")


@manifest_check(
    "ENG004", "The software in the pods knows what the manifests say to it",
    why="An unknown flag stops vLLM, the router or its sidecar; an unknown key of LMCache or of a connector is ignored, and a metric that "
    "nothing exports leaves a scaler or an alert without data.",
    link=_KV,
    seen_in=("https://github.com/vllm-project/vllm/issues/41814", "https://github.com/llm-d/llm-d-benchmark/issues/878"),
)  # fmt: skip
def emitted(manifests: Sequence[Object], groups: Groups) -> Iterator[Problem]:  # noqa: ARG001
    """Compare flags, JSON, connectors, variables and metric names with the lists of the versions in the images."""
    for body in manifests:
        for found in unknown(body):
            yield _problem(found, found.path)


@check(
    "ENG005", "The versions in the image know what this tool says to them",
    why="A feature of this tool can need a newer vLLM or LMCache than the image carries. vLLM exits on a flag from the future; a key of a "
    "connector that it does not read yet it ignores, and pods that were to keep their KV apart share it.",
    link=_KV,
    seen_in=("https://github.com/vllm-project/vllm/issues/41814",),
)  # fmt: skip
def derived(environment: Environment, _: Context) -> Iterator[Problem]:
    """Compare what is derived from the file, user's own arguments and variables aside, with the lists of the stated versions."""
    site = Site.of(environment)
    for index, endpoint in enumerate(environment.endpoints):
        plain = endpoint.model_copy(update={"environment": {}, **{name: _without_arguments(role) for name, role in endpoint.roles}})
        said: set[str] = set()
        try:
            found = [item for body in _workers(plain, site) for item in unknown(body, versions(endpoint))]
        except ValueError:  # an unknown group or type, which other rules report
            continue
        for item in found:
            if item.value not in said:
                said.add(item.value)
                yield _problem(item, f"endpoints[{index}].image" if endpoint.image else f"endpoints[{index}]")


def _without_arguments(role: Role) -> Role:
    return role.model_copy(update={"extra_args": ()})


def _workers(endpoint: Endpoint, site: Site) -> Iterator[Object]:
    """The objects in which engines run. The operator's own object takes longer to make than all rules to run, so its pods stand for it."""
    if endpoint.backend != "operator":
        from dpd.backends.llmd.workers import objects  # noqa: PLC0415 (only where an endpoint needs it)

        yield from objects(endpoint, site)
        return
    work = workload(endpoint, site)
    variables = [{"name": name, "value": value} for name, value in work.environment.items()]
    for role in (work.prefill, work.decode):
        words = ["vllm", "serve", *arguments(role.flags)]
        container = {"name": role.name, "image": work.image, "command": words, "env": variables}
        yield {"kind": "Pod", "metadata": {"name": endpoint.name}, "spec": {"containers": [container]}}
