"""``python -m bench.plan``: the planner's time, its cost over fleets, and its answer beside that of aiconfigurator's own search.

``python -m bench.plan sweep NODES`` and ``search`` are single runs in processes of their own. aiconfigurator is installed into a throwaway
environment; without a registry its part is left out, with the reason.
"""

import json
import random
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

from bench.measure import Command, in_turn, median_seconds, peak_mib
from dpd.catalog import instances, models
from dpd.planning.calibration import NONE
from dpd.planning.candidate import Candidate, Case, Goal, Request
from dpd.planning.closed_form import estimate
from dpd.planning.known_models import config, missing
from dpd.planning.simulation import ENGINE, MOST, simulated
from dpd.planning.sweep import CHUNKS, THRESHOLDS, Sweep, closed_form, colocated, rank, splits, sweep, tensor_parallels
from dpd.sizing.pod import efa_share

ROOT: Final = Path(__file__).parent.parent
NODES: Final = (2, 8, 32)
MODEL, INSTANCE, SYSTEM = "llama-3.3-70b-instruct", "ml.p5.48xlarge", "h100_sxm"
SMALL_MODEL: Final = "llama-3.1-8b-instruct"
"""Fits one GPU, so that there are four tensor parallel sizes."""
INPUT, OUTPUT, TTFT_MS, ITL_MS = 8000, 256, 2000, 50
RATE_FOR_EACH_NODE: Final = 2.0
REQUESTS: Final = 300
AICONFIGURATOR: Final = "aiconfigurator==0.12.0"
_SEARCH: Final = """
import json, sys, time, warnings
warnings.simplefilter("ignore")
begin = time.perf_counter()
from aiconfigurator.cli import cli_default
model, system, *numbers = sys.argv[1:]
isl, osl, ttft, tpot = map(int, numbers)
found = cli_default(model, 16, system, backend="vllm", isl=isl, osl=osl, ttft=float(ttft), tpot=float(tpot))
best = {name: table.iloc[0].to_dict() for name, table in found.best_configs.items()}
said = {"seconds": time.perf_counter() - begin, "chosen": found.chosen_exp, "best": best}
print("ANSWER" + json.dumps(said, default=str))
"""


def question(nodes: int, model: str = MODEL) -> Case:
    """Prompts of 8,000 tokens, two requests a second for each node."""
    shape, machine = models.find(model), instances.find(INSTANCE)
    assert shape is not None
    assert machine is not None
    chance, now, requests = random.Random(0), 0.0, []  # noqa: S311 (arrivals, no secret)
    rate = RATE_FOR_EACH_NODE * nodes
    for _ in range(REQUESTS):
        now += chance.expovariate(rate) * 1e3
        requests.append(Request(now, INPUT, OUTPUT))
    devices = {ranks: efa_share(machine, ranks) for ranks in (1, 2, 4, 8)}
    return Case(shape, machine, nodes * machine.gpus, tuple(requests), rate, Goal(TTFT_MS, ITL_MS), devices, max_model_len=INPUT + OUTPUT)


def whole_sweep() -> tuple[list[Candidate], Case]:
    """Every layout of 16 GPUs: four tensor parallel sizes by the chunk sizes; every split by every threshold. Over a mix of lengths."""
    asked = question(2, SMALL_MODEL)
    chance = random.Random(1)  # noqa: S311 (lengths, no secret)
    lengths = (300, 700, 1500, 3000, 6000, INPUT)
    mixed = tuple(Request(request.arrival_ms, chance.choice(lengths), OUTPUT) for request in asked.requests)
    asked = Case(
        asked.model, asked.instance, asked.gpus, mixed, asked.rate_per_second, asked.goal, asked.efa_devices,
        max_model_len=asked.max_model_len,
    )  # fmt: skip
    sizes, _ = tensor_parallels(asked)
    both = list(colocated(asked, sizes))
    return both + [
        Candidate.disaggregated(split.prefillers, split.decoders, split.tensor_parallel, threshold_tokens=threshold)
        for split in splits(asked, sizes)
        for threshold in THRESHOLDS
    ], asked


def _answer(found: Sweep, asked: Case) -> dict[str, Any]:
    outcomes = [*found.colocated, *found.disaggregated]
    best = {
        kind: min(
            (one for one in outcomes if one.candidate.kind == kind), key=lambda one: (rank(one, asked), one.candidate)
        )
        for kind in ("colocated", "disaggregated")
    }  # fmt: skip
    return {
        "layouts": len(outcomes), "simulated": sum(one.engine == ENGINE for one in outcomes),
        "best": {
            kind: {
                "layout": one.candidate.name, "ttft_p99": round(one.ttft_ms.p99), "itl_p99": round(one.itl_ms.p99, 1),
                "within": round(one.goodput_share, 3), "tokens_per_gpu": round(one.output_tokens_per_second / asked.gpus, 1),
            }
            for kind, one in best.items()
        },
    }  # fmt: skip


def run(what: str, argument: str) -> None:
    """One run, in this process; prints its answer as JSON."""
    begin, used = time.perf_counter(), time.process_time()
    if what == "whole":
        layouts, asked = whole_sweep()
        outcomes, _ = simulated(NONE)(layouts, asked, lambda: None)
        said: dict[str, Any] = {"layouts": len(layouts), "simulated": sum(outcome.engine == ENGINE for outcome in outcomes)}
    else:
        asked = question(int(argument))
        said = _answer(sweep(asked, simulated(NONE) if what == "sweep" else closed_form()), asked)
    print("ANSWER" + json.dumps(said | {"seconds": time.perf_counter() - begin, "core_seconds": time.process_time() - used}))


def _process(*words: str, folder: Path = ROOT) -> dict[str, Any]:
    done = subprocess.run(words, cwd=folder, capture_output=True, text=True, check=False, timeout=900)  # noqa: S603 (our own commands)
    line = next((line for line in done.stdout.splitlines() if line.startswith("ANSWER")), "")
    if not line:
        raise RuntimeError((done.stderr or done.stdout)[-600:])
    found: dict[str, Any] = json.loads(line.removeprefix("ANSWER"))
    return found


def _ours(what: str, argument: str = "") -> dict[str, Any]:
    return _process(sys.executable, "-m", "bench.plan", what, argument)


def _theirs(scratch: Path) -> dict[str, Any] | str:
    """aiconfigurator's answer to the same question, or why there is none."""
    python = scratch / "aiconfigurator" / "bin" / "python"
    try:
        subprocess.run([sys.executable, "-m", "venv", str(python.parents[1])], check=True, capture_output=True, timeout=120)  # noqa: S603
        subprocess.run(  # noqa: S603 (our own commands)
            [str(python), "-m", "pip", "install", "--quiet", "--disable-pip-version-check", AICONFIGURATOR],
            check=True, capture_output=True, timeout=600,
        )  # fmt: skip
    except (subprocess.SubprocessError, OSError) as error:
        return f"{AICONFIGURATOR} could not be installed ({type(error).__name__})"
    shape = models.find(MODEL)
    assert shape is not None
    model = scratch / "model"
    model.mkdir()
    (model / "config.json").write_text(json.dumps(config(shape)), encoding="utf-8")
    try:
        return _process(str(python), "-c", _SEARCH, str(model), SYSTEM, str(INPUT), str(OUTPUT), str(TTFT_MS), str(ITL_MS), folder=scratch)
    except RuntimeError as error:
        return f"{AICONFIGURATOR} gave no answer: {' '.join(str(error).split())[-200:]}"


def section() -> Iterator[str]:
    """The part of the benchmark page that is about planning."""
    yield from ("", "## Planning", "")
    asked = question(2)
    begin = time.perf_counter()
    estimate(Candidate.disaggregated(3, 1, 4), asked, NONE)
    each = (time.perf_counter() - begin) * 1e3
    yield f"One layout in closed form takes {each:.0f} ms. Whole processes, imports included, median of three:"
    yield ""
    yield "| What | Median | Peak memory | Goal |"
    yield "|---|---|---|---|"
    python = (sys.executable, "-m", "bench.plan")
    commands = {
        f"Closed form, every layout of {2 * 8} GPUs": (Command((*python, "closed", "2"), ROOT), "0.3 s"),
        f"Closed form, every layout of {32 * 8} GPUs": (Command((*python, "closed", "32"), ROOT), ""),
    }
    without = missing(asked)
    if not without:
        layouts, _ = whole_sweep()
        kinds = f"4 tensor parallel sizes x {len(CHUNKS)} chunk sizes, every split x {len(THRESHOLDS)} thresholds"
        whole = f"{len(layouts)} layouts of 16 GPUs ({kinds}), {MOST} of them simulated"
        commands[whole] = Command((*python, "whole", ""), ROOT), "15 s"
        for nodes in NODES:
            commands[f"The sweep of dpd plan, {nodes} nodes"] = (
                Command((*python, "sweep", str(nodes)), ROOT),
                "15 s" if nodes == NODES[0] else "",
            )
    runs = in_turn({name: command for name, (command, _) in commands.items()}, runs=3)
    for name, (_, goal) in commands.items():
        yield f"| {name} | {median_seconds(runs[name]):.1f} s | {peak_mib(runs[name]):.0f} MiB | {goal} |"
    yield ""
    if without:
        yield f"Not measured: {without}."
        return
    yield from _beside()


def _beside() -> Iterator[str]:
    yield f"The same question to {AICONFIGURATOR}: Llama 3.3 70B, 16 x H100, prompts of {INPUT:,} and answers of {OUTPUT} tokens,"
    yield f"TTFT {TTFT_MS} ms, {ITL_MS} ms between tokens. It plans a steady state, without queues and without the way of the KV;"
    yield f"dpd simulates {RATE_FOR_EACH_NODE * 2:g} requests a second."
    yield ""
    with tempfile.TemporaryDirectory() as scratch:
        theirs = _theirs(Path(scratch))
    ours = _ours("sweep", "2")
    yield "| | Seconds | Colocated | Disaggregated |"
    yield "|---|---|---|---|"
    cells = [
        f"{one['layout']}: TTFT p99 {one['ttft_p99']} ms, gaps p99 {one['itl_p99']} ms, {one['within']:.0%} within both"
        for one in (ours["best"]["colocated"], ours["best"]["disaggregated"])
    ]
    yield f"| dpd plan's sweep | {ours['seconds']:.1f} | {' | '.join(cells)} |"
    if isinstance(theirs, str):
        yield f"| aiconfigurator | left out: {theirs} | | |"
    else:
        said = " | ".join(_their_words(theirs["best"].get(kind, {})) for kind in ("agg", "disagg"))
        yield f"| aiconfigurator (prefers {theirs['chosen']}) | {theirs['seconds']:.1f} | {said} |"


def _their_words(row: dict[str, Any]) -> str:
    def number(*names: str) -> str:
        value = next((row[name] for name in names if name in row), None)
        return f"{float(value):.0f}" if value is not None else "?"

    if not row:
        return "none"
    if "(p)tp" in row:
        layout = f"{number('(p)workers')}P TP{number('(p)tp')} : {number('(d)workers')}D TP{number('(d)tp')}"
    else:
        layout = f"TP{number('tp')}"
    return f"{layout}: TTFT {number('ttft')} ms, gaps {number('tpot')} ms, {number('tokens/s/gpu')} tokens/s each GPU (means)"


if __name__ == "__main__":
    if len(sys.argv) > 1:
        run(sys.argv[1], sys.argv[2])
    else:
        print("\n".join(section()))
