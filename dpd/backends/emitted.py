"""What rendered objects say to the software in their containers, compared with what that software accepts.

Flags and their values, JSON inside flags, connectors and the keys of their free part, environment variables, metric names in
queries. A name that no list has is reported: vLLM exits on some of them, and ignores the others without a word.
"""

import json
import re
import shlex
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import takewhile
from typing import Any, Final

from dpd.backends.arguments import Argument, parse
from dpd.catalog import images
from dpd.catalog.engines import SOFTWARE, Flag, Lists, any_version, engine, lists, version_key
from dpd.catalog.llmd import llmd

Object = Mapping[str, Any]

_WHOLE: Final = re.compile(r"-?[0-9]+")
_SIZE: Final = re.compile(r"-?[0-9]+(\.[0-9]+)?[kKmMgGtT]?|auto")
_COMPUTED: Final = re.compile(r"\$\(\(.*?\)\)|\$\{\w+\}")
"""What a shell fills in: a number or a variable."""
_SERIES: Final = re.compile(r"(?<![\w:])(?:vllm:|lmcache:|llm_d_epp_|agent_|DCGM_|kube_pod_|node_amazonefa_)\w+")
_PREFIXES: Final = {
    "vllm:": "vllm", "lmcache:": "lmcache", "llm_d_epp_": "llm-d-picker", "agent_": "nixl",
    "DCGM_": "dcgm-exporter", "kube_pod_": "kube-state-metrics", "node_amazonefa_": "efa-counters",
}  # fmt: skip
_VARIABLES: Final = {"VLLM_": "vllm", "LMCACHE_": "lmcache", "NIXL_": "nixl"}
_QUERIES: Final = {"query", "expr"}
_LMCACHE_CONNECTORS: Final = {"LMCacheConnectorV1", "LMCacheMPConnector"}
_NONE: Final = {"", "None", "none", "null"}


@dataclass(frozen=True, slots=True)
class Versions:
    """Versions of what is in the engines' image. Empty ones are taken from the catalog's entry of the image, if there is one."""

    vllm: str = ""
    lmcache: str = ""


@dataclass(frozen=True, slots=True)
class Unknown:
    """Something that the software does not know. ``certain`` when the list is that of its very version."""

    path: str
    message: str
    value: str
    fix: str
    certain: bool = True


@dataclass(frozen=True, slots=True)
class Container:
    """One container: what it runs, with a shell's script taken apart."""

    path: str
    image: str
    words: tuple[str, ...]
    variables: dict[str, str]
    """Its environment variables; one that is a reference has an empty text."""


def unknown(body: Object, versions: Versions = Versions()) -> Iterator[Unknown]:
    """Everything in one object that the software in its containers does not know."""
    for container in containers(body):
        yield from _in_container(container, versions)
    for path, query in _queries(body, _where(body)):
        yield from unknown_series(path, query, versions)


def unknown_series(path: str, text: str, versions: Versions = Versions()) -> Iterator[Unknown]:
    """Metric names in a query, or a name alone, that nothing exports."""
    for name in sorted(set(_SERIES.findall(text))):
        software = next(software for begin, software in _PREFIXES.items() if name.startswith(begin))
        known = _known(software, versions)
        if not known.exports(name):
            yield Unknown(path, f"{known.title} exports no such metric", name, known.advice("metrics", name), known.exact)


def containers(body: Object) -> Iterator[Container]:
    """Containers of every pod template in an object, wherever it stands, and those of the two roles of the operator's resource."""
    if body.get("kind") == "InferenceEndpointConfig":
        yield from _operator(body)
    else:
        yield from _templates(body, _where(body))


def _where(body: Object) -> str:
    metadata = body.get("metadata") or {}
    return f"{body.get('kind', 'object')} {metadata.get('name', '(no name)')}"


def _operator(body: Object) -> Iterator[Container]:
    spec = body.get("spec") or {}
    worker = spec.get("worker") or {}
    for key in ("prefillSpec", "decodingSpec"):
        role = (spec.get("pdSpec") or {}).get(key)
        if role:
            words = ("vllm", "serve", *map(str, (*worker.get("args", ()), *role.get("args", ()))))
            yield Container(f"{_where(body)}: {key}", str(worker.get("image", "")), words, _named(worker.get("environmentVariables")))


def _templates(node: Any, path: str) -> Iterator[Container]:
    if isinstance(node, list):
        for item in node:
            yield from _templates(item, path)
    elif isinstance(node, Mapping):
        for key in ("initContainers", "containers"):
            for item in node.get(key) or () if isinstance(node.get(key), list) else ():
                if isinstance(item, Mapping) and "image" in item:
                    place = f"{path}: container {item.get('name')}"
                    yield Container(place, str(item["image"]), tuple(_words(item)), _named(item.get("env")))
        for key, item in node.items():
            if key not in ("initContainers", "containers"):
                yield from _templates(item, path)


def _named(variables: Any) -> dict[str, str]:
    named = [item for item in variables or () if isinstance(item, Mapping) and "name" in item]
    return {str(item["name"]): str(item.get("value") or "") for item in named}


def _words(container: Object) -> list[str]:
    """What runs, word by word. Of a script that is its last command, with a number for what the shell fills in."""
    words = [*map(str, container.get("command") or ()), *map(str, container.get("args") or ())]
    if len(words) > 2 and words[0].endswith("sh") and words[1] == "-c":  # noqa: PLR2004
        last = _COMPUTED.sub("0", words[2]).strip().splitlines()[-1].rpartition(";")[2]
        split = [part for word in shlex.split(last) for part in (words[4:] if word == "$@" else [word])]
        return split[1:] if split[:1] == ["exec"] else split
    return words


def _in_container(container: Container, versions: Versions) -> Iterator[Unknown]:
    versions = of_image(container.image, versions)
    software, arguments = program(container)
    if software:
        known = _known(software, versions, container.image)
        for argument in parse(arguments).known if software == "vllm" else _plain(arguments):
            yield from unknown_argument(f"{container.path}: argument {argument.flag}", argument, known, versions)
    for name in container.variables:
        yield from unknown_variable(f"{container.path}: {name}", name, versions)


def unknown_variable(path: str, name: str, versions: Versions = Versions()) -> Iterator[Unknown]:
    """An environment variable that begins like those of an engine, and that the engine does not read."""
    software = next((software for begin, software in _VARIABLES.items() if name.startswith(begin)), None)
    if software is None:
        return
    known = _known(software, versions)
    key = name.removeprefix("LMCACHE_").lower()
    if name in known.names("variables") or (software == "lmcache" and key in known.names("keys")):
        return
    if software == "lmcache":
        renamed = known.table("aliases").get(key, {}).get("key")
        fix = f"write LMCACHE_{renamed.upper()}" if renamed else known.advice("keys", key).replace(f" {key}", f" {name}")
        fix = re.sub(r"mean ([a-z0-9_]+)\?", lambda found: f"mean LMCACHE_{found[1].upper()}?", fix)
    else:
        fix = known.advice("variables", name)
    yield Unknown(path, f"{known.title} does not read this variable", name, fix, known.exact)


def of_image(reference: str, versions: Versions = Versions()) -> Versions:
    """The versions, with those of the catalog's entry of the image where none is given."""
    named, _, digest = reference.partition("@")
    repository, _, tag = named.rpartition(":") if ":" in named.rpartition("/")[2] else (named, "", "")
    known = next((image for image in images.images() if digest and image.digest == digest), None) or images.find(repository, tag)
    if known is None:
        return versions
    return Versions(versions.vllm or known.vllm, versions.lmcache or known.lmcache)


def program(container: Container) -> tuple[str, tuple[str, ...]]:
    """The software that a container runs, if it is one of those with lists, and its arguments."""
    words = container.words
    if words[:2] == ("vllm", "serve"):
        return "vllm", words[3:] if len(words) > 2 and not words[2].startswith("-") else words[2:]  # noqa: PLR2004
    if words[:1] == ("vllm-router",):
        return "vllm-router", words[1:]
    repository = container.image.partition("@")[0]
    for name, software in (("picker", "llm-d-picker"), ("sidecar", "llm-d-sidecar")):
        if llmd().images[name].repository in repository:
            return software, words
    return "", ()


def _known(software: str, versions: Versions, image: str = "") -> Lists:
    version = {"vllm": versions.vllm, "lmcache": versions.lmcache}.get(software, "")
    if software.startswith("llm-d"):
        version = image.partition("@")[0].rpartition(":v")[2]
        return lists(software, version if re.fullmatch(r"[0-9.]+", version) else "")
    return lists(software, version) if version else any_version(software)


def _plain(words: tuple[str, ...]) -> Iterator[Argument]:
    """Arguments of other programs: values follow an equals sign, or as the next words."""
    for index, word in enumerate(words):
        if word.startswith("-"):
            name, equals, value = word.partition("=")
            follows = tuple(takewhile(lambda text: not text.startswith("-"), words[index + 1 :]))
            yield Argument(f"--{name.lstrip('-')}", (value,) if equals else follows, index)


def flag_of(argument: Argument, known: Lists) -> Flag | None:
    """The flag that an argument is about: itself, what it turns off, or what takes the JSON that a dotted form is a part of."""
    found, base = known.flag(argument.flag), known.flag(argument.base)
    if found or base is None:
        return found
    off = argument.flag.startswith("--no-") and base.kind == "switch"
    return base if off or ("." in argument.flag and base.kind in ("json", "text")) else None


def unknown_argument(path: str, argument: Argument, known: Lists, versions: Versions = Versions()) -> Iterator[Unknown]:
    """A flag that a version does not have, or a value that it does not take."""
    flag = flag_of(argument, known)
    if flag is None:
        yield Unknown(path, f"{known.title} has no such flag", argument.flag, known.advice("flags", argument.base), known.exact)
    elif "." in argument.flag:
        field = argument.flag.partition(".")[2].partition(".")[0].rstrip("+")
        if flag.config and field not in known.config(flag.config):
            yield Unknown(path, f"{flag.name} has no field of this name", argument.flag, _near(known, flag.config, field), known.exact)
    elif flag.kind == "json":
        yield from _json(path, flag, " ".join(argument.values), known, versions)
    elif known.exact:
        yield from _values(path, flag, argument.values)


def _values(path: str, flag: Flag, values: tuple[str, ...]) -> Iterator[Unknown]:
    """Values that the parser of the software refuses."""
    if flag.kind in ("switch", "mark"):
        if values:
            yield Unknown(path, f"{flag.name} takes no value", " ".join(values), "remove the value")
        return
    if not values and flag.kind != "bool" and flag.values != "optional":
        yield Unknown(path, f"{flag.name} needs a value", flag.name, "write one behind it")
    if len(values) > 1 and flag.values == "one":
        yield Unknown(path, f"{flag.name} takes one value", " ".join(values), "write one")
    for value in (part for text in values for part in (text.split(",") if flag.values == "many" and flag.choices else [text])):
        if value not in _NONE and (wrong := _refused(flag, value)):
            yield Unknown(path, f"{flag.name} does not take this value", value, wrong)


def _refused(flag: Flag, value: str) -> str:
    """What is wrong with one value; empty when nothing is."""
    if flag.choices and value not in map(str, flag.choices):
        return f"choose one of {', '.join(map(str, flag.choices))}"
    if flag.kind == "bool" and value not in ("true", "false"):
        return "write true or false"
    if flag.kind == "int" and not _WHOLE.fullmatch(value):
        return "write a whole number"
    if flag.kind == "size" and not _SIZE.fullmatch(value):
        return "write a whole number, such as 8192 or 8k"
    if flag.kind == "float":
        try:
            float(value)
        except ValueError:
            return "write a number"
    return ""


def _json(path: str, flag: Flag, text: str, known: Lists, versions: Versions) -> Iterator[Unknown]:
    try:
        value = json.loads(text)
    except ValueError:
        yield Unknown(path, f"{flag.name} takes JSON", text, "write a JSON object")
        return
    if isinstance(value, dict):
        yield from _config(path, flag.config, value, known, versions)


def _config(path: str, name: str, value: dict[str, Any], known: Lists, versions: Versions) -> Iterator[Unknown]:
    """A JSON object against the class that reads it, and what is inside it against theirs."""
    fields = known.config(name)
    for key, item in value.items() if fields else ():
        if key not in fields:
            yield Unknown(path, f"{name} has no field of this name", key, _near(known, name, key), known.exact)
        elif isinstance(item, dict) and fields[key].config:
            yield from _config(path, fields[key].config, item, known, versions)
        elif known.exact and isinstance(item, str) and (wrong := _refused(fields[key], item)):
            yield Unknown(path, f"{name}.{key} does not take this value", item, wrong)
    if name == "KVTransferConfig":
        yield from _connector(path, value, known, versions)


def _near(known: Lists, name: str, key: str) -> str:
    return known.advice("configs", f"{name}.{key}").replace(f"{name}.", "")


def _connector(path: str, value: dict[str, Any], known: Lists, versions: Versions) -> Iterator[Unknown]:
    """A KV connector, the keys of its free part, and the connectors inside it. One from a module of its own is nobody's to judge."""
    name = str(value.get("kv_connector", ""))
    extra = value.get("kv_connector_extra_config") or {}
    if not name or value.get("kv_connector_module_path"):
        return
    if name not in known.names("connectors"):
        yield Unknown(path, f"{known.title} has no such connector", name, known.advice("connectors", name), known.exact)
        return
    for key in extra:
        if key not in known.keys("connectors", name) and not (name in _LMCACHE_CONNECTORS and _of_lmcache(key, versions)):
            near = _since(known, "connectors", name, key)
            yield Unknown(path, f"{name} of {known.title} reads no such key of kv_connector_extra_config", key, near, known.exact)
    for inner in extra.get("connectors", ()):
        yield from _config(path, "KVTransferConfig", inner, known, versions)
    for tier in extra.get("secondary_tiers", ()):
        yield from _tier(path, tier, known)


def _of_lmcache(key: str, versions: Versions) -> bool:
    known = _known("lmcache", versions)
    return key in known.names("connector_keys") or key.removeprefix("lmcache.") in known.names("keys")


def _tier(path: str, tier: dict[str, Any], known: Lists) -> Iterator[Unknown]:
    """A secondary tier of the offloading connector. One from a module of its own is nobody's to judge."""
    name = str(tier.get("type", ""))
    if tier.get("module_path"):
        return
    if name not in known.names("tiers"):
        yield Unknown(path, f"{known.title} has no secondary tier of this type", name, known.advice("tiers", name), known.exact)
        return
    for key in tier:
        if key not in known.keys("tiers", name):
            near = _since(known, "tiers", name, key)
            yield Unknown(path, f"the {name} tier of {known.title} has no such key", key, near, known.exact)


def _since(known: Lists, table: str, name: str, key: str) -> str:
    """What to do about a key: the first later version that reads it, or the keys that this one reads."""
    later = [version for version in engine(known.software).stamps if known.version and version_key(version) > version_key(known.version)]
    came = next((version for version in later if key in lists(known.software, version).keys(table, name)), None)
    keys = known.keys(table, name)
    return f"{SOFTWARE[known.software]} has it since {came}" if came else f"it reads {', '.join(sorted(keys))}" if keys else f"remove {key}"


def _queries(node: Any, path: str) -> Iterator[tuple[str, str]]:
    """Texts in which metric names stand: queries of scalers, expressions of alerts."""
    if isinstance(node, list):
        for item in node:
            yield from _queries(item, path)
    elif isinstance(node, Mapping):
        for key, item in node.items():
            if key in _QUERIES and isinstance(item, str):
                yield f"{path}: {key}", item
            else:
                yield from _queries(item, path)
