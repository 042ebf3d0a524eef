"""What vLLM accepts and exports: read from the sources in its wheel."""

import ast
import re
from collections.abc import Iterator
from contextlib import suppress
from typing import Any, Final

from scripts.engine_lists.source import Hint, Place, Sources, UnknownValueError

Entry = dict[str, Any]

_ENGINE: Final = "vllm.engine.arg_utils"
_CONNECTORS: Final = "vllm.distributed.kv_transfer.kv_connector"
_SCALED: Final = {
    "max_model_len", "max_num_batched_tokens", "max_num_scheduled_tokens", "max_num_queued_tokens", "kv_cache_memory_bytes",
    "safetensors_prefetch_block_size",
}  # fmt: skip
"""Whole numbers that may be written as 8k."""
_METRIC: Final = re.compile(r"vllm:[a-z0-9_]+")
_KINDS: Final = ("counter", "gauge", "histogram", "summary")
_SHARED: Final = ("vllm.v1.kv_offload", "vllm.v1.simple_kv_offload")


def lists(sources: Sources) -> dict[str, dict[str, Any]]:
    """Every list of one version, by table."""
    flags = serve(sources)
    return {
        "flags": flags,
        "configs": configs(sources, flags),
        "connectors": connectors(sources),
        "tiers": dict(sorted(_tiers(sources))),
        "variables": {name: {} for name in sorted(variables(sources))},
        "metrics": metrics(sources, _METRIC),
    }


def entry(sources: Sources, hints: list[Hint], name: str) -> Entry:  # noqa: PLR0911 (vLLM's own order of questions)
    """What one field accepts, in the order in which vLLM itself decides it."""
    kinds = {hint.kind: hint for hint in hints}
    if "config" in kinds:
        return {"kind": "json", "config": kinds["config"].inner[0]}
    if kinds.keys() == {"bool", "str", "none"}:
        return {"kind": "text", "values": "optional"}
    if "bool" in kinds:
        return {"kind": "switch"}
    if "literal" in kinds:
        return _choices(kinds["literal"], closed="str" not in kinds)
    for collection in ("tuple", "list", "set"):
        if collection in kinds:
            return _collection(sources, kinds[collection], collection, name)
    if "int" in kinds:
        return {"kind": "size" if name in _SCALED else "int"}
    if "float" in kinds:
        return {"kind": "float"}
    return {"kind": "json" if kinds.keys() <= {"dict", "none"} and "dict" in kinds else "text"}


def _choices(hint: Hint, *, closed: bool) -> Entry:
    kind = "int" if isinstance(hint.inner[0], int) else "text"
    return {"kind": kind, **({"choices": sorted(set(hint.inner))} if closed else {})}


def _collection(sources: Sources, hint: Hint, collection: str, name: str) -> Entry:
    items = hint.inner[0] if hint.inner else (Hint("str"),)
    inner = entry(sources, list(items) if len(items) == 1 else [Hint("str")], name)
    inner.pop("config", None)
    return {**inner, "values": len(hint.inner) if collection == "tuple" and len(hint.inner) > 1 else "many"}


def _default(sources: Sources, module: str, node: ast.expr | None) -> Entry:  # noqa: PLR0911 (one answer for each form)
    """``{"default": …}`` where it is a constant."""
    match node:
        case None:
            return {}
        case ast.Call(keywords=keywords, args=arguments):
            given = {item.arg: item.value for item in keywords}
            if "default" in given or arguments:
                return _default(sources, module, given.get("default", arguments[0] if arguments else None))
            match given.get("default_factory"):
                case ast.Name(id="list" | "set"):
                    return {"default": []}
                case ast.Name(id="dict"):
                    return {"default": {}}
                case ast.Lambda(body=body):
                    return _default(sources, module, body)
            return {}
    try:
        value = sources.value((module, node))
    except UnknownValueError:
        return {}
    return {"default": value} if isinstance(value, bool | int | float | str | list | None) else {}


def described(sources: Sources, place: Place) -> dict[str, Entry]:
    """Every field of a configuration class."""
    return {
        name: {**entry(sources, sources.hints((module, node.annotation)), name), **_default(sources, module, node.value)}
        for name, (module, node) in sources.fields(place).items()
        if not name.startswith("_")
    }


def serve(sources: Sources) -> dict[str, Entry]:
    """Flags of ``vllm serve``, long form with dashes, in order of the alphabet."""
    # The module has moved twice; only one has the class.
    module = next(name for name in sources.modules("vllm.entrypoints") if "class FrontendArgs" in sources.texts[name])
    found = dict(_added(sources, _ENGINE)) | dict(_added(sources, module))
    frontend = sources.define(module, "FrontendArgs")
    assert frontend
    fields = described(sources, frontend)
    _amend(sources, module, {"frontend_kwargs": fields})
    found |= {f"--{name.replace('_', '-')}": item for name, item in fields.items()}
    if "class EnableDisableAction" in sources.texts.get("vllm.utils.argparse_utils", ""):
        found = {name: {**item, "paired": True} if _is_paired(name, item) else item for name, item in found.items()}
    return dict(sorted(found.items()))


def _is_paired(name: str, item: Entry) -> bool:
    """Whether a switch has its opposite under the name with ``enable`` and ``disable`` changed, beside the ``--no-`` form."""
    return item["kind"] == "switch" and name.startswith(("--enable-", "--disable-"))


def _added(sources: Sources, module: str) -> Iterator[tuple[str, Entry]]:
    """Every literal ``add_argument`` of a module, with what its keywords or the class behind them say."""
    classes = {name: described(sources, place) for name, place in _kwargs(sources, module)}
    classes = _fields_of(sources, module, classes)
    _amend(sources, module, classes)
    for node in ast.walk(sources.tree(module)):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr == "add_argument":
            texts = [str(item.value) for item in node.args if isinstance(item, ast.Constant)]
            names = [text for text in texts if text.startswith("-")]
            long = [name for name in names if name.startswith("--")]
            if long:
                short = [name for name in names if name not in long[:1]]
                yield long[0], {**explicit(sources, module, node, classes), **({"short": short} if short else {})}


def _kwargs(sources: Sources, module: str) -> Iterator[tuple[str, Place]]:
    """Variables that hold the arguments of a class: ``x = get_kwargs(Config)``, with or without a field of it behind."""
    for node in ast.walk(sources.tree(module)):
        if isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name):
            value = node.value.value if isinstance(node.value, ast.Subscript) else node.value
            if isinstance(value, ast.Call) and isinstance(value.func, ast.Name) and value.func.id == "get_kwargs":
                argument = value.args[0]
                if isinstance(argument, ast.Name) and (place := sources.define(module, argument.id)):
                    yield node.targets[0].id, place


def _fields_of(sources: Sources, module: str, classes: dict[str, dict[str, Entry]]) -> dict[str, dict[str, Entry]]:
    """The same variables and those made of them; a variable that holds one field alone has only that one."""
    found = dict(classes)
    for node in ast.walk(sources.tree(module)):
        match node:
            case ast.Assign(targets=[ast.Name(id=name)], value=ast.Subscript(value=value, slice=ast.Constant(value=str() as key))):
                origin = classes.get(name) if isinstance(value, ast.Call) else classes.get(_name(value))
                if origin and key in origin:
                    found[name] = {key: origin[key]}
    return found


def _name(node: ast.AST) -> str:
    match node:
        case ast.Name(id=name):
            return name
        case ast.Call(func=ast.Name(id="dict"), args=[ast.Name(id=name)]):
            return name
    return ""


def explicit(sources: Sources, module: str, node: ast.Call, classes: dict[str, dict[str, Entry]]) -> Entry:
    """What an ``add_argument`` says in its own keywords, on top of what its class says."""
    found: Entry = {}
    for keyword in node.keywords:
        if keyword.arg is None:
            found |= _spread(sources, module, keyword.value, classes)
    given = {keyword.arg: keyword.value for keyword in node.keywords if keyword.arg}
    action = ast.unparse(given["action"]) if "action" in given else ""
    if "store_true" in action or "store_false" in action:
        found["kind"] = "mark"
    elif "BooleanOptionalAction" in action:
        found["kind"] = "switch"
    elif isinstance(given.get("type"), ast.Name | ast.Attribute):
        found |= {"kind": {"int": "int", "float": "float", "json.loads": "json"}.get(ast.unparse(given["type"]), "text")}
    if "choices" in given:
        found.pop("choices", None)
        with suppress(UnknownValueError):
            found["choices"] = sorted(sources.value((module, given["choices"])))
    if isinstance(given.get("nargs"), ast.Constant):
        found["values"] = "optional" if ast.unparse(given["nargs"]) == "'?'" else "many"
    return {"kind": "text", **found, **_default(sources, module, given.get("default"))}


def _spread(sources: Sources, module: str, value: ast.expr, classes: dict[str, dict[str, Entry]]) -> Entry:
    """What ``**config_kwargs["field"]`` brings, also inside a dictionary that changes some of it."""
    found: Entry = {}
    for node in ast.walk(value):
        match node:
            case ast.Subscript(value=ast.Name(id=name), slice=ast.Constant(value=str() as key)) if name in classes:
                found = dict(classes[name][key])
            case ast.Name(id=name) if name in classes and len(classes[name]) == 1:
                found = dict(next(iter(classes[name].values())))
    if isinstance(value, ast.Dict):
        for name_of, item in zip(value.keys, value.values, strict=True):
            if isinstance(name_of, ast.Constant) and name_of.value == "default":
                found |= _default(sources, module, item)
    return found


def _amend(sources: Sources, module: str, classes: dict[str, dict[str, Entry]]) -> None:
    """Apply what vLLM changes on the way: ``config_kwargs["field"]["type"] = json.loads`` and the like."""
    for node in ast.walk(sources.tree(module)):
        target: ast.AST | None = None
        match node:
            case ast.Assign(targets=[ast.Subscript() as target]):
                _amended(sources, module, classes, target, node.value)
            case ast.AugAssign(target=ast.Subscript() as target) | ast.Delete(targets=[ast.Subscript() as target]):
                _amended(sources, module, classes, target, None)
            case ast.Call(func=ast.Attribute(attr="remove", value=ast.Subscript() as target), args=[argument]):
                found = _field(classes, target)
                if found:
                    found[0]["choices"] = [item for item in found[0].get("choices", []) if item != sources.value((module, argument))]


def _amended(sources: Sources, module: str, classes: dict[str, dict[str, Entry]], target: ast.AST, value: ast.expr | None) -> None:
    found = _field(classes, target)
    if found is None:
        return
    item, key = found
    text = ast.unparse(value) if value else ""
    if key == "type" and ("json.loads" in text or "(str)" in text):
        item["kind"] = "json" if "json.loads" in text else "text"
    elif key == "nargs" or (key == "action" and "append" in text):
        item.pop("values", None)
    elif key == "choices" and value is None:
        item.pop("choices", None)
    elif key == "default" and value is not None:
        item |= _default(sources, module, value)


def _field(classes: dict[str, dict[str, Entry]], target: ast.AST) -> tuple[Entry, str] | None:
    match target:
        case ast.Subscript(
            value=ast.Subscript(value=ast.Name(id=name), slice=ast.Constant(value=str() as key)), slice=ast.Constant(value=str() as what)
        ) if key in classes.get(name, {}):
            return classes[name][key], what
    return None


def configs(sources: Sources, flags: dict[str, Entry]) -> dict[str, Entry]:
    """Fields of every class that a flag takes as JSON, and of the classes inside them, as ``Class.field``."""
    modules = [(name, node) for name in sources.modules("vllm.config") for node in sources.tree(name).body]
    places: dict[str, Place] = {node.name: (name, node) for name, node in modules if isinstance(node, ast.ClassDef)}
    waiting = sorted({item["config"] for item in flags.values() if "config" in item})
    found: dict[str, dict[str, Entry]] = {}
    while waiting:
        name = waiting.pop()
        if name not in found and name in places:
            found[name] = described(sources, places[name])
            waiting += [item["config"] for item in found[name].values() if "config" in item]
    return {f"{name}.{field}": item for name, fields in sorted(found.items()) for field, item in sorted(fields.items())}


def connectors(sources: Sources) -> dict[str, Entry]:
    """Registered KV connectors, each with the keys that it reads from ``kv_connector_extra_config``."""
    shared = {name for beginning in _SHARED for name in sources.modules(beginning)}
    found: dict[str, Entry] = {}
    for name, module in _registered(sources, f"{_CONNECTORS}.factory", "register_connector"):
        package = module if module.rpartition(".")[0] == f"{_CONNECTORS}.v1" else module.rpartition(".")[0]
        own = {*sources.modules(package), *_imported(sources, module)}
        reads = {*own, *(shared if "ffload" in name else ())}
        found[name] = {"keys": sorted({key for item in reads for key in extra_keys(sources, item)})}
    return dict(sorted(found.items()))


def _registered(sources: Sources, module: str, function: str) -> Iterator[tuple[str, str]]:
    """Name and module of what a factory registers."""
    for node in ast.walk(sources.tree(module)) if module in sources.texts else ():
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr == function:
            texts = [item.value for item in node.args if isinstance(item, ast.Constant)]
            yield str(texts[0]), str(texts[1])


def _imported(sources: Sources, module: str) -> set[str]:
    """Modules of the connectors that a connector imports, except those that all of them share."""
    common = {f"{_CONNECTORS}.v1.base", f"{_CONNECTORS}.v1", f"{_CONNECTORS}.v1.metrics", f"{_CONNECTORS}.v1.multi_connector"}
    seen: set[str] = set()
    open_ = [module]
    while open_:
        here = open_.pop()
        if here in seen or here in common or here not in sources.texts or not here.startswith(f"{_CONNECTORS}.v1."):
            continue
        seen.add(here)
        open_ += [
            node.module for node in ast.walk(sources.tree(here)) if isinstance(node, ast.ImportFrom) and node.module and not node.level
        ]
    return seen


def extra_keys(sources: Sources, module: str) -> Iterator[str]:
    """Keys that a module reads from a connector's free configuration, in every way to read a mapping."""
    for node in ast.walk(sources.tree(module)):
        key = _key(node)
        if key is not None:
            try:
                value = sources.value((module, key))
            except UnknownValueError:
                continue
            if isinstance(value, str):
                yield value


def _key(node: ast.AST) -> ast.expr | None:
    match node:
        case ast.Call(func=ast.Attribute(attr="get_from_extra_config"), args=[key, *_]):
            return key
        case ast.Call(func=ast.Attribute(attr="get" | "pop", value=mapping), args=[key, *_]) if _is_extra(mapping):
            return key
        case ast.Subscript(value=mapping, slice=key) if _is_extra(mapping):
            return key
        case ast.Compare(left=key, ops=[ast.In() | ast.NotIn()], comparators=[mapping]) if _is_extra(mapping):
            return key
    return None


def _is_extra(node: ast.AST) -> bool:
    return isinstance(node, ast.Name | ast.Attribute) and ast.unparse(node).endswith("extra_config")


def _tiers(sources: Sources) -> Iterator[tuple[str, Entry]]:
    """Secondary tiers of the offloading connector, each with the arguments that its entry in the configuration takes."""
    for name, module in _registered(sources, "vllm.v1.kv_offload.tiering.factory", "register_tier"):
        keys: set[str] = set()
        for node in sources.tree(module).body if module in sources.texts else []:
            if isinstance(node, ast.ClassDef) and node.name.endswith("TierManager"):
                for method in node.body:
                    if isinstance(method, ast.FunctionDef) and method.name == "__init__":
                        keys |= {argument.arg for argument in [*method.args.args, *method.args.kwonlyargs]}
        yield name, {"keys": sorted((keys | {"type"}) - {"self", "offloading_config", "primary_kv_view", "tier_type"})}


def variables(sources: Sources) -> set[str]:
    """Environment variables that vLLM knows."""
    for node in ast.walk(sources.tree("vllm.envs")):
        match node:
            case ast.AnnAssign(target=ast.Name(id="environment_variables"), value=ast.Dict(keys=keys)):
                return {str(key.value) for key in keys if isinstance(key, ast.Constant)}
    raise UnknownValueError


def metrics(sources: Sources, pattern: re.Pattern[str]) -> dict[str, Entry]:
    """Metric families by name, with their kind where the call that makes them says it."""
    found: dict[str, Entry] = {}
    for module in sorted(sources.texts):
        if f"{pattern.pattern.partition(':')[0]}:" not in sources.texts[module]:
            continue
        for node in ast.walk(sources.tree(module)):
            if isinstance(node, ast.Constant) and isinstance(node.value, str) and pattern.fullmatch(node.value):
                found.setdefault(node.value, {})
            elif isinstance(node, ast.Call):
                called = ast.unparse(node.func).lower()
                kind = next((kind for kind in _KINDS if kind in called), None)
                names = [*node.args[:1], *(keyword.value for keyword in node.keywords if keyword.arg == "name")]
                for name in names if kind else []:
                    if isinstance(name, ast.Constant) and isinstance(name.value, str) and pattern.fullmatch(name.value):
                        found[name.value] = {"kind": kind}
    return dict(sorted(found.items()))
