"""The router of the vLLM project in front of both roles, for prompts that go through a prefiller."""

from collections.abc import Sequence

from rehearsal.install import Engines
from rehearsal.processes import Process, Processes

PROGRAM = "vllm-router"
HEALTH = "/health"


def start(
    processes: Processes, engines: Engines, *, place: tuple[str, int], metrics_port: int, prefill: Sequence[str], decode: Sequence[str]
) -> Process:
    """Start it. It asks a prefiller first, and gives what that says to a decoder."""
    address, port = place
    argv = [engines.program(PROGRAM), "--vllm-pd-disaggregation", "--kv-connector", "nixl", "--policy", "round_robin"]
    argv += [word for url in prefill for word in ("--prefill", url)] + [word for url in decode for word in ("--decode", url)]
    argv += ["--host", address, "--port", str(port), "--prometheus-host", address, "--prometheus-port", str(metrics_port)]
    # A fault must show at once, and not be tried again.
    argv += ["--disable-retries", "--disable-circuit-breaker"]
    # A worker that comes back is used again at once, and one on a busy core is not taken for dead.
    argv += ["--health-check-interval-secs", "2", "--health-success-threshold", "1"]
    argv += ["--health-check-timeout-secs", "15", "--health-failure-threshold", "4"]
    variables = {"PATH": str(engines.python.parent), "HOME": str(processes.folder)}
    return processes.start("router", argv, variables, f"http://{address}:{port}")
