"""An endpoint on one machine: its workers as their manifests say, what hands KV over, the router, and the front."""

import os
from collections.abc import Iterable, Mapping
from contextlib import ExitStack
from dataclasses import dataclass, replace
from pathlib import Path
from types import MappingProxyType
from typing import Any, Final, Literal

from health_gate.spec import DECODE, PREFILL, Spec

from rehearsal import model, router
from rehearsal.drive import Driver
from rehearsal.front import Counted, Front, Routes
from rehearsal.install import Engines
from rehearsal.judge import Stand
from rehearsal.manifests import Worker, workers
from rehearsal.processes import Processes, memory_free, ports_free
from rehearsal.say import Say, Unable
from rehearsal.substitutions import Fitted, Place, Substitution, fit

Handover = Literal["nixl", "lmcache"]

_NETWORKS: Final = {PREFILL: "127.0.1", DECODE: "127.0.2", "router": "127.0.3", "lmcache": "127.0.4"}
_FIRST_HOST: Final = 10
_LMCACHE_PORT: Final = 5555
_LMCACHE_HTTP_PORT: Final = 8080
_LMCACHE_HEALTH: Final = "/healthcheck"
_LMCACHE_HASH_SEED: Final = "PYTHONHASHSEED"
_ROUTER_METRICS_PORT: Final = 29000
_GIB_PER_WORKER: Final = 2.8
_GIB_OF_LMCACHE: Final = 1.5
_GIB_BESIDE: Final = 0.5
START_SECONDS: Final = 420.0
"""Engines come up in half a minute on idle cores, and in many times that on busy ones."""


@dataclass(frozen=True, slots=True)
class Script:
    """What is rehearsed. ``objects`` are the endpoint's synthesized ones; ``spec`` is the gate's, with this endpoint alone.

    ``threshold_tokens`` and ``max_model_len`` are those of this machine, ``block_size`` is of the workers' KV cache.
    """

    spec: Spec
    objects: tuple[Mapping[str, Any], ...]
    threshold_tokens: int
    max_model_len: int
    block_size: int
    no_prefiller: str
    handover: Handover
    prefillers: int = 1
    decoders: int = 1


@dataclass(frozen=True, slots=True)
class Instance:
    """A worker and where it runs."""

    name: str
    role: str
    address: str
    port: int
    fitted: Fitted

    @property
    def url(self) -> str:
        """Where it answers."""
        return f"http://{self.address}:{self.port}"


class Stage:
    """A context: everything runs inside and nothing after it. Raises ``Unable`` before anything is started, ``Broken`` later."""

    def __init__(self, script: Script, engines: Engines, folder: Path, say: Say) -> None:
        self.script, self.say = script, say
        self._engines, self._folder = engines, folder
        self._stack = ExitStack()
        self.seconds: dict[str, float] = {}
        self.instances = self._cast()
        (self.endpoint,) = script.spec.endpoints

    def __enter__(self) -> "Stage":
        router_port = self.endpoint.pods["router"].port
        deciding = self.endpoint.decisions
        places = [(f"{_NETWORKS['router']}.{_FIRST_HOST}", router_port)]
        if deciding and self.endpoint.pods[deciding.role].port != router_port:
            places.append((places[0][0], self.endpoint.pods[deciding.role].port))
        self._router_place = f"{_NETWORKS['router']}.{_FIRST_HOST + 1}", router_port
        lmcache = f"{_NETWORKS['lmcache']}.{_FIRST_HOST}"
        shared = [(lmcache, _LMCACHE_PORT), (lmcache, _LMCACHE_HTTP_PORT)] if self.script.handover == "lmcache" else []
        ports_free([*places, self._router_place, *shared, *((each.address, each.port) for each in self.instances)])
        memory_free(_GIB_PER_WORKER * len(self.instances) + _GIB_BESIDE + (_GIB_OF_LMCACHE if shared else 0))
        try:
            self.processes = self._stack.enter_context(Processes(self._folder / "logs", self.say))
            model.make(self.model, max_model_len=self.script.max_model_len)
            if shared:
                self._start_lmcache(lmcache)
            self.start(*(each.name for each in self.instances))
            routes = self._routes()
            if self.script.handover == "nixl":
                router.start(
                    self.processes, self._engines, place=self._router_place, metrics_port=_ROUTER_METRICS_PORT,
                    prefill=routes.prefill, decode=routes.decode,
                )  # fmt: skip
                self.seconds |= self.processes.wait(["router"], router.HEALTH, START_SECONDS)
                routes.router = self.processes.running["router"].url
            counted = Counted(deciding.split[0], deciding.whole[0]) if deciding else Counted()
            self.front = self._stack.enter_context(Front(routes, places, counted))
        except BaseException:
            self._stack.close()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()

    @property
    def model(self) -> Path:
        """The folder of the model."""
        return self._folder / "model"

    @property
    def substitutions(self) -> tuple[Substitution, ...]:
        """What is not as in the manifests, each once for a role."""
        seen: dict[tuple[str, str], Substitution] = {}
        for each in (each for instance in self.instances for each in instance.fitted.substitutions):
            seen.setdefault((each.role, each.name), each)
        return tuple(seen.values())

    def urls(self, role: str) -> list[str]:
        """Where the workers of a role answer."""
        return [each.url for each in self.instances if each.role == role]

    def stands(self) -> list[Stand]:
        """The workers as the gate sees them, whether they run or not."""
        logs = self._folder / "logs"
        return [Stand(each.name, each.role, each.address, logs / f"{each.name}.log", each.fitted.arguments) for each in self.instances]

    def driver(self) -> Driver:
        """Traffic for this endpoint."""
        block_size = self.script.block_size if self.script.handover == "nixl" else 0
        return Driver(self.endpoint, self.front, self.urls(PREFILL), self.urls(DECODE), block_size, self.say)

    def start(self, *names: str, without: Mapping[str, Iterable[str]] = MappingProxyType({})) -> None:
        """Start workers side by side and wait until they answer. ``without``: flags that one is started without, for a fault."""
        self.say(f"starting {', '.join(names)}")
        for each in self.instances:
            if each.name in names:
                arguments = _without(each.fitted.arguments, set(without.get(each.name, ())))
                argv = [str(self._engines.python), "-m", "vllm.entrypoints.openai.api_server", *arguments]
                self.processes.start(each.name, argv, each.fitted.variables, each.url)
        took = self.processes.wait(names, "/health", START_SECONDS)
        self.seconds = took | self.seconds

    def stop(self, *names: str) -> None:
        """Stop workers."""
        for name in names:
            self.processes.stop(name)

    def names(self, role: str) -> list[str]:
        """The workers of a role."""
        return [each.name for each in self.instances if each.role == role]

    def _routes(self) -> Routes:
        return Routes(
            self.urls(PREFILL), self.urls(DECODE), self.script.threshold_tokens, self.endpoint.characters_per_token,
            self.script.no_prefiller, handover="nixl" if self.script.handover == "nixl" else "shared",
        )  # fmt: skip

    def _cast(self) -> list[Instance]:
        script = self.script
        (endpoint,) = script.spec.endpoints
        cores = sorted(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else list(range(os.cpu_count() or 1))
        wanted = {PREFILL: script.prefillers, DECODE: script.decoders}
        if sum(wanted.values()) > len(cores):
            raise Unable(f"{sum(wanted.values())} workers need as many cores; this machine has {len(cores)}.")
        found, free = [], iter(cores)
        known = workers(script.objects, endpoint)
        for role in (PREFILL, DECODE):
            worker = known[role]
            for number in range(wanted[role]):
                name, address = f"{role}-{number}", f"{_NETWORKS[role]}.{_FIRST_HOST + number}"
                place = Place(
                    address,
                    next(free),
                    self._folder / "model",
                    self._folder,
                    _lmcache_connector(role) if script.handover == "lmcache" else None,
                )
                found.append(Instance(name, role, address, worker.port, _counted_replicas(fit(worker, place), worker, wanted[role])))
        return found

    def _start_lmcache(self, address: str) -> None:
        argv = [
            self._engines.program("lmcache"), "server", "--host", address, "--port", str(_LMCACHE_PORT), "--l1-size-gb", "1",
            "--eviction-policy", "LRU", "--chunk-size", str(self.endpoint.chunk_tokens), "--supported-transfer-mode", "engine_driven",
            "--http-host", address, "--http-port", str(_LMCACHE_HTTP_PORT), "--disable-observability",
        ]  # fmt: skip
        variables = {
            "PATH": str(self._engines.python.parent), "HOME": str(self._folder), _LMCACHE_HASH_SEED: "0", "VLLM_TARGET_DEVICE": "cpu",
        }  # fmt: skip
        self.processes.start("lmcache", argv, variables, f"http://{address}:{_LMCACHE_HTTP_PORT}")
        self.seconds |= self.processes.wait(["lmcache"], _LMCACHE_HEALTH, START_SECONDS)


def _counted_replicas(fitted: Fitted, worker: Worker, here: int) -> Fitted:
    if worker.replicas == here:
        return fitted
    fewer = Substitution(worker.role, "replicas", str(worker.replicas), str(here), "each has a core of its own")
    return replace(fitted, substitutions=(*fitted.substitutions, fewer))


def _lmcache_connector(role: str) -> dict[str, Any]:
    return {
        "kv_connector": "LMCacheMPConnector",
        "kv_role": "kv_producer" if role == PREFILL else "kv_consumer",
        "kv_connector_extra_config": {"lmcache.mp.host": f"tcp://{_NETWORKS['lmcache']}.{_FIRST_HOST}", "lmcache.mp.port": _LMCACHE_PORT},
    }


def _without(arguments: tuple[str, ...], flags: set[str]) -> list[str]:
    found: list[str] = []
    skipping = False
    for word in arguments:
        skipping = word in flags or (skipping and not word.startswith("--"))
        if not skipping:
            found.append(word)
    return found
