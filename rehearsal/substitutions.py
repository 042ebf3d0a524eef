"""The one list of what is not as in the manifests, and why. It is printed with every run and stands in its report.

What a CPU forces and nothing else: whoever reads a report must know that EFA, GPUs and the image were not tried.
"""

import json
import os
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from dpd.backends.arguments import Argument, parse
from rehearsal.manifests import Worker

_ABSENT: Final = "(absent)"
_CONNECTOR: Final = "--kv-transfer-config"
_KV_GIB: Final = 1
MOST_TOKENS: Final = 2048
"""Longest prompt and answer: on one core attention over more takes minutes."""


@dataclass(frozen=True, slots=True)
class Place:
    """Where a worker runs. ``address`` stands for the pod's, ``core`` is the one it is pinned to, ``folder`` is its own.

    ``connector`` replaces the KV connector of the manifest where that cannot run here.
    """

    address: str
    core: int
    model: Path
    folder: Path
    connector: Mapping[str, Any] | None = None


@dataclass(frozen=True, slots=True)
class Substitution:
    """One difference between the manifest and what ran."""

    role: str
    name: str
    manifest: str
    here: str
    why: str


@dataclass(frozen=True, slots=True)
class Fitted:
    """What is run."""

    arguments: tuple[str, ...]
    variables: dict[str, str]
    substitutions: tuple[Substitution, ...]


Value = Callable[[Place, str], str]


def _same(text: str) -> Value:
    return lambda _place, _manifest: text


def shortened(manifest: str) -> str:
    """The longest context that is rehearsed, for one of a manifest."""
    return str(min(int(manifest), MOST_TOKENS)) if manifest.isdigit() else str(MOST_TOKENS)


FLAGS: Final[tuple[tuple[str, Value, str], ...]] = (
    ("--host", lambda place, _: place.address, "each worker has a loopback address of its own, as each pod has an address"),
    ("--tensor-parallel-size", _same("1"), "one core is one rank"),
    ("--max-model-len", lambda _, manifest: shortened(manifest), "more takes minutes on one core; the threshold shrinks with it"),
    ("--kv-cache-dtype", _same("auto"), "the model is in bfloat16, and so is its KV"),
    ("--load-format", _same("auto"), "the weights are a file here"),
)  # fmt: skip
"""Flags that get another value where the manifest has them."""
DROPPED: Final = (
    "--attention-backend", "--chat-template", "--enable-auto-tool-choice", "--hf-overrides", "--kv-events-config",
    "--model-loader-extra-config",
    "--quantization", "--reasoning-parser", "--revision", "--speculative-config", "--tokenizer", "--tool-call-parser",
)  # fmt: skip
"""Flags that belong to the real model, to a GPU, or to a picker that would listen to all workers."""
ADDED: Final = (("--enforce-eager", "compiling takes longer than everything else"),)
CONNECTOR: Final[tuple[tuple[tuple[str, ...], Any, str], ...]] = (
    (("kv_buffer_device",), "cpu", "there is no GPU memory"),
    (("kv_connector_extra_config", "backends"), ["UCX"], "LIBFABRIC needs EFA devices: KV goes over UCX and TCP, and EFA is NOT tried"),
)
"""Fields of the KV connector."""
VARIABLES: Final[tuple[tuple[str, Value, str], ...]] = (
    ("VLLM_NIXL_SIDE_CHANNEL_HOST", lambda place, _: place.address, "the address of the worker, as in a pod the pod's"),
    ("HF_HOME", lambda place, _: str(place.folder / "hf"), "a folder that can be written"),
)  # fmt: skip
"""Variables that get another value where the manifest has them."""
MORE_VARIABLES: Final[tuple[tuple[str, Value, str], ...]] = (
    ("VLLM_TARGET_DEVICE", _same("cpu"), "the engine for CPUs"),
    ("VLLM_CPU_OMP_THREADS_BIND", lambda place, _: str(place.core), "a core of its own: two workers on one core wait for each other"),
    ("VLLM_CPU_NUM_OF_RESERVED_CPU", _same("0"), "no core is kept free"),
    ("OMP_NUM_THREADS", _same("1"), "one thread for one core"),
    ("VLLM_CPU_KVCACHE_SPACE", _same(str(_KV_GIB)), "GiB of memory for KV"),
    ("VLLM_HOST_IP", _same("127.0.0.1"), "nothing leaves the machine"),
    ("UCX_TLS", _same("tcp,self,sm"), "what UCX finds without InfiniBand"),
    ("UCX_NET_DEVICES", _same("lo"), "nothing leaves the machine"),
    ("HF_HUB_OFFLINE", _same("1"), "nothing is downloaded"),
    ("VLLM_NO_USAGE_STATS", _same("1"), "nothing is reported to anybody"),
)  # fmt: skip
"""Variables that no manifest has."""
_FROM_OUTSIDE: Final = ("PATH", "HOME", "LANG", "LC_ALL", "TMPDIR")
"""All that a worker gets of the caller's environment."""


def fit(worker: Worker, place: Place) -> Fitted:
    """What a worker is run with, and every difference from its manifest."""
    seen: list[Substitution] = []

    def note(name: str, manifest: str, here: str, why: str) -> str:
        if manifest != here:
            seen.append(Substitution(worker.role, name, manifest, here, why))
        return here

    note("vLLM", worker.image, "the build for CPUs", "the image needs a GPU")
    note("model", worker.model, f"{place.model.name}, made on the spot", "the real one does not fit; its answers mean nothing")
    arguments = ["--model", str(place.model)]
    for argument in parse(worker.arguments).known:
        arguments += _argument(argument, place, note)
    if place.connector is not None and _CONNECTOR not in arguments:
        text = json.dumps(place.connector)
        arguments += [
            _CONNECTOR,
            note(_CONNECTOR, _ABSENT, text, "the operator adds LMCache's PD backend in its pods, which does not run on a CPU"),
        ]
    for flag, why in ADDED:
        if flag not in arguments:
            arguments.append(note(flag, _ABSENT, flag, why))
    variables = {name: os.environ[name] for name in _FROM_OUTSIDE if name in os.environ} | dict(worker.variables)
    for name, value, why in VARIABLES:
        if name in variables:
            variables[name] = note(name, variables[name] or "(the pod's)", value(place, variables[name]), why)
    for name, value, why in MORE_VARIABLES:
        variables[name] = note(name, variables.get(name, _ABSENT), value(place, ""), why)
    return Fitted(tuple(arguments), variables, tuple(seen))


Note = Callable[[str, str, str, str], str]


def _argument(argument: Argument, place: Place, note: Note) -> Iterator[str]:
    """One flag as it is run."""
    flag, said = argument.flag, " ".join(argument.values)
    if flag == "--model":
        return
    if flag in DROPPED:
        note(flag, said or flag, _ABSENT, "it belongs to the real model, to a GPU or to the picker")
        return
    yield flag
    if flag == _CONNECTOR:
        yield _connector(said, note)
        return
    for name, value, why in FLAGS:
        if flag == name:
            yield note(flag, said, value(place, said), why)
            return
    yield from argument.values


def _connector(said: str, note: Note) -> str:
    config = json.loads(said)
    inner = (config.get("kv_connector_extra_config") or {}).get("connectors")
    if inner:
        hands_over = next((each for each in inner if "Nixl" in each.get("kv_connector", "")), inner[0])
        note(f"{_CONNECTOR}: kv_connector", config["kv_connector"], hands_over["kv_connector"], "tiers need a GPU's memory to leave")
        config = {"kv_load_failure_policy": config.get("kv_load_failure_policy", "fail"), **hands_over}
    for path, here, why in CONNECTOR:
        holder = config
        for key in path[:-1]:
            holder = holder.get(key) or {}
        if path[-1] in holder:
            note(f"{_CONNECTOR}: {'.'.join(path)}", json.dumps(holder[path[-1]]), json.dumps(here), why)
            holder[path[-1]] = here
    return json.dumps(config)


def together(substitutions: Iterable[Substitution]) -> list[Substitution]:
    """The same substitution of several roles as one."""
    found: dict[tuple[str, ...], Substitution] = {}
    for each in substitutions:
        key = each.name, each.manifest, each.here, each.why
        role = f"{found[key].role}, {each.role}" if key in found else each.role
        found[key] = Substitution(role, *key)
    return list(found.values())
