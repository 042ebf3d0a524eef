"""``python -m bench.gate``: a run of the health gate over 64 nodes and 16 endpoints, in a process of its own.

The fakes of the tests answer on loopback from this process, so that time and memory of the other are the gate's alone.
Seconds are those of fast servers: what they show is the gate's own share.
"""

import json
import resource
import subprocess
import sys
import time
from pathlib import Path
from typing import Any, Final

ROOT: Final = Path(__file__).parent.parent
sys.path.insert(0, str(ROOT / "lambda"))  # functions stand alone, so no installed package holds them

from health_gate.clients import clients  # noqa: E402
from health_gate.run import run  # noqa: E402
from health_gate.spec import Spec  # noqa: E402

from tests.lambdas.fake_cluster import authority  # noqa: E402
from tests.lambdas.health_gate.aws_calls import Calls, Things  # noqa: E402
from tests.lambdas.health_gate.efa import Efa  # noqa: E402
from tests.lambdas.health_gate.engine import DECODE_IP, PREFILL_IP, ROUTER_IP, Engine  # noqa: E402
from tests.lambdas.health_gate.world import NAMESPACE, SYSTEM, World, endpoint_slice, kube_node, pod, running  # noqa: E402

NODES: Final = 64
ENDPOINTS: Final = 16
GROUPS: Final = {"system": ("ml.c5.4xlarge", 2), "prefill": ("ml.p5.48xlarge", NODES // 2), "decode": ("ml.p5.48xlarge", NODES // 2)}


def fill(world: World) -> dict[str, Any]:
    """Make the world large. Gives its spec."""
    world.nodes = [kube_node(name, number) for name, (_, count) in GROUPS.items() for number in range(count)]
    efa = Efa().join(world)
    exporters = [each for each in world.pods if "efa" in each["metadata"]["name"]]
    first = world.document()
    world.pods, world.slices, endpoints = exporters, [world.slices[1]], []
    for number in range(ENDPOINTS):
        name, service = f"chat{number}", f"chat{number}-routing-service"
        world.engines[str(number)] = Engine(logs=_logs(), carry=efa.carry)
        prefixes = {role: f"{role}-{name}-" for role in ("prefill", "decode", "router")}
        world.pods += [
            pod("prefill", f"127.0.{number}.3", name=f"{prefixes['prefill']}a", namespace=NAMESPACE),
            pod("decode", f"127.0.{number}.4", name=f"{prefixes['decode']}a", namespace=NAMESPACE),
            pod("router", f"127.0.{number}.2", name=f"{prefixes['router']}a", namespace=SYSTEM, containers=2),
        ]
        world.slices.append(endpoint_slice(SYSTEM, service, f"127.0.{number}.2", f"{prefixes['router']}a", world.pods_port))
        shape = first["endpoints"][0]
        pods = {role: {**shape["pods"][role], "name_prefix": prefix} for role, prefix in prefixes.items()}
        pods["router"]["service"] = service
        endpoints.append({**shape, "name": name, "pods": pods})
    counts = {name: {**first["groups"][name], "count": count} for name, (_, count) in GROUPS.items()}
    return {**first, "groups": counts, "endpoints": endpoints}


def _logs() -> dict[str, list[str]]:
    """What each server says at its start, by address."""
    return {ROUTER_IP: [], PREFILL_IP: ["{'pd_role': 'sender'}"], DECODE_IP: ["{'pd_role': 'receiver'}"]}


def gate(document: str, api: str) -> None:
    """Run the gate and print what it took."""
    things = Things(GROUPS)
    things.api = (api, authority())
    calls = Calls(things.answers)
    spec = Spec.parse(document)
    begin = time.perf_counter()
    outside = clients(spec, session=calls.session)
    report = run(spec, outside)
    seconds = time.perf_counter() - begin
    if report.open:
        raise SystemExit(report.table())
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    print(f"{len(report.results)} checks, {len(calls.made)} calls of AWS, {seconds:.1f} s, peak memory {peak:.0f} MiB")


def main() -> None:
    """Answer, let the gate ask, and count."""
    with running() as world:
        document = fill(world)
        words = [sys.executable, "-m", "bench.gate", "gate", world.api]
        subprocess.run(words, cwd=ROOT, input=json.dumps(document), text=True, check=True)  # noqa: S603 (our own command)
        asked = sum(len(engine.prompts) for engine in world.engines.values())
        print(f"{len(world.requests)} calls of Kubernetes, {asked} prompts; {NODES} GPU nodes, {ENDPOINTS} endpoints")


if __name__ == "__main__":
    if sys.argv[1:2] == ["gate"]:
        gate(sys.stdin.read(), sys.argv[2])
    else:
        main()
