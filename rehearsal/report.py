"""What a rehearsal found, as Markdown, as JSON and as a picture of its timeline."""

import json
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any, Final

from rehearsal import install
from rehearsal.drive import Sample
from rehearsal.run import Result
from rehearsal.substitutions import together

NEVER: Final = (
    "EFA and libfabric: KV went over UCX and TCP on one machine. Neither devices, driver, security groups nor bandwidth were tried.",
    "GPUs: kernels, GPU memory, tensor parallelism, KV that goes from GPU to GPU.",
    "The images: vLLM, NIXL and LMCache are builds for CPUs of the versions named above, not what the images carry.",
    "Kubernetes: probes, scheduling, volumes, Services, the picker or the operator and its router. The front stands in for the last two.",
    "The model: its answers here are words without a meaning; memory, speed and quality say nothing about the real one.",
)
"""What no rehearsal covers."""
MARKDOWN, JSON, PICTURE = "rehearsal.md", "rehearsal.json", "timeline.png"


def write(result: Result, folder: Path) -> list[Path]:
    """Write the report; the picture only where matplotlib is installed. Returns the files."""
    folder.mkdir(parents=True, exist_ok=True)
    picture = _picture(result)
    texts: list[tuple[str, bytes]] = [(JSON, as_json(result).encode()), (MARKDOWN, markdown(result, pictured=picture is not None).encode())]
    if picture is not None:
        texts.append((PICTURE, picture))
    for name, content in texts:
        (folder / name).write_bytes(content)
    return [folder / name for name, _ in texts]


def as_json(result: Result) -> str:
    """Everything as JSON."""
    value: dict[str, Any] = {
        "environment": result.environment,
        "endpoint": result.endpoint,
        "backend": result.backend,
        "passed": not result.wrong,
        "wrong": result.wrong,
        "versions": versions(result),
        "installed": {"gib": result.engines.gib, "seconds": result.engines.seconds},
        "seconds": round(result.seconds, 1),
        "threshold_tokens": result.threshold_tokens,
        "substitutions": [asdict(each) for each in result.substitutions],
        "started_seconds": {name: round(seconds, 1) for name, seconds in result.started.items()},
        "requests": [{**asdict(each), "exact": each.exact} for each in result.samples],
        "benchmark": None if result.cost is None else {
            **asdict(result.cost), "handover_ms": result.cost.handover_ms, "throughput_ratio": result.cost.throughput_ratio,
        },
        "gate": result.gate.as_dict(),
        "faults": [
            {"id": each.fault.id, "title": each.fault.title, "expected": each.fault.expected, "cause": each.cause, "right": each.right,
             "summary": each.summary, "seconds": round(each.seconds, 1)}
            for each in result.faults
        ],
        "parsers": [asdict(each) for each in result.parsed],
        "not_covered": [*result.not_covered, *NEVER],
        "timeline": [{"what": name, "from": round(begin, 1), "to": round(end, 1)} for name, begin, end in result.events],
    }  # fmt: skip
    return json.dumps(value, indent=2) + "\n"


def versions(result: Result) -> dict[str, str]:
    """What ran."""
    found = {"vllm": f"{install.VLLM} (CPU)", "nixl": install.NIXL, "vllm-router": install.ROUTER}
    return found if result.backend == "llm-d" else {"vllm": found["vllm"], "lmcache": install.LMCACHE}


def summary(result: Result) -> str:
    """A few lines for a terminal."""
    return "\n".join(_summary(result))


def _summary(result: Result) -> Iterator[str]:
    outcome = "FAIL" if result.wrong else "PASS"
    yield f"{outcome}  rehearsal of {result.endpoint} ({result.backend}) in {result.environment}, {result.seconds:.0f} s"
    for text in result.wrong:
        yield f"      {text}"
    split = [each for each in result.samples if each.split]
    if any(each.kv_bytes for each in split):
        exact = sum(each.exact for each in split)
        yield f"      KV: {sum(each.kv_bytes for each in split):,} bytes moved, {exact} of {len(split)} hand-overs exactly as computed"
    yield f"      tokens from prefill: {sum(each.external_tokens for each in split):,} of {sum(each.prompt_tokens for each in split):,}"
    yield f"      answers: {sum(each.equal is True for each in split)} of {len(split)} equal to the decoder's own"
    passed = sum(each.passed for each in result.gate.results)
    yield f"      gate: {passed} of {len(result.gate.results)} checks passed" + "".join(f"; {id} excused" for id in result.excused)
    if result.faults:
        yield f"      faults: {sum(each.right for each in result.faults)} of {len(result.faults)} found by the right check"
    if result.parsed:
        accepted = sum(not each.complaints for each in result.parsed)
        yield f"      parsers: {accepted} of {len(result.parsed)} argument lists and settings accepted"
    if result.cost:
        yield (
            f"      hand-over: {result.cost.handover_ms:+.0f} ms of TTFT, {result.cost.throughput_ratio:.2f} of the colocated throughput"
        )


def markdown(result: Result, *, pictured: bool) -> str:
    """The whole report as Markdown."""
    return "\n".join(_markdown(result, pictured=pictured)) + "\n"


def _table(columns: Sequence[str], rows: Iterable[Sequence[object]]) -> Iterator[str]:
    yield "| " + " | ".join(columns) + " |"
    yield "|" + "---|" * len(columns)
    for row in rows:
        yield "| " + " | ".join(str(cell).replace("|", "\\|") for cell in row) + " |"
    yield ""


def _markdown(result: Result, *, pictured: bool) -> Iterator[str]:
    yield f"# Rehearsal of {result.endpoint} in {result.environment}"
    yield ""
    yield "```text"
    yield from _summary(result)
    yield "```"
    yield ""
    yield f"Ran: {', '.join(f'{name} {version}' for name, version in versions(result).items())}, backend {result.backend}. "
    yield f"The engines take {result.engines.gib:.1f} GiB and were installed in {result.engines.seconds / 60:.1f} minutes."
    yield ""
    if pictured:
        yield f"![What happened when]({PICTURE})"
        yield ""
    yield from _traffic(result)
    yield from _gate(result)
    yield from _differences(result)


def _traffic(result: Result) -> Iterator[str]:
    yield "## Start and traffic"
    yield ""
    yield from _table(("process", "seconds until it answered"), ((name, f"{seconds:.0f}") for name, seconds in result.started.items()))
    yield f"The threshold here is {result.threshold_tokens} estimated tokens."
    yield ""
    yield from _table(
        ("way", "prompt + answer tokens", "TTFT", "inter-token", "KV bytes moved", "computed", "transfer", "tokens from prefill", "answer"),
        (
            (each.way, f"{each.prompt_tokens} + {each.answer_tokens}", f"{each.ttft_ms:.0f} ms", f"{each.itl_ms:.0f} ms",
             *_moved(each, counted=result.backend == "llm-d"), each.external_tokens,
             {True: "equal", False: "DIFFERS", None: "not compared"}[each.equal])
            for each in result.samples
        ),
    )  # fmt: skip
    if result.cost is None:
        return
    cost = result.cost
    yield "## What the hand-over costs"
    yield ""
    number = cost.disaggregated.requests
    yield f"Prompts of {cost.prompt_tokens} tokens, answers of {cost.answer_tokens}; medians over {number} requests one by one, "
    yield "then as many two at a time. Colocated: the same workers on the same cores, each doing everything itself."
    yield ""
    both = cost.disaggregated, cost.colocated
    rows = [
        ("TTFT", *(f"{each.ttft_ms:.0f} ms" for each in both), _ratio(both[0].ttft_ms, both[1].ttft_ms)),
        ("inter-token latency", *(f"{each.itl_ms:.1f} ms" for each in both), _ratio(both[0].itl_ms, both[1].itl_ms)),
        ("whole answer", *(f"{each.seconds:.2f} s" for each in both), _ratio(both[0].seconds, both[1].seconds)),
        ("requests a second", *(f"{each.requests_per_second:.2f}" for each in both), f"{cost.throughput_ratio:.2f}"),
        ("tokens a second", *(f"{each.tokens_per_second:.1f}" for each in both), _ratio(*(each.tokens_per_second for each in both))),
    ]  # fmt: skip
    yield from _table(("", "disaggregated", "colocated", "ratio"), rows)
    yield f"The hand-over adds {cost.handover_ms:.0f} ms to the first token: one more request, the transfer, and the last token read again."
    yield ""


def _moved(sample: Sample, *, counted: bool) -> tuple[str, str, str]:
    """Bytes moved, bytes computed, and the time of the transfer."""
    if not counted:
        return "not counted", "", ""
    return f"{sample.kv_bytes:,}", f"{sample.kv_bytes_computed:,}", f"{sample.transfer_seconds * 1000:.2f} ms"


def _ratio(one: float, other: float) -> str:
    return f"{one / other:.2f}" if other else "none"


def _gate(result: Result) -> Iterator[str]:
    yield "## The health gate"
    yield ""
    yield from _table(("check", "result", "says"), ((each.id, each.outcome, each.summary) for each in result.gate.results))
    for id, why in result.excused.items():
        yield f"`{id}` is excused: {why}"
        yield ""
    if result.faults:
        yield "Faults that were made on purpose, and the first check that did not pass:"
        yield ""
        rows = ((each.fault.title, each.fault.expected, each.cause or "nothing", each.summary) for each in result.faults)
        yield from _table(("fault", "must be found by", "was found by", "says"), rows)
    if result.parsed:
        yield "## Parsers"
        yield ""
        yield from _table(
            ("what", "read by", "complaints"), ((each.what, each.parser, "; ".join(each.complaints) or "none") for each in result.parsed)
        )


def _differences(result: Result) -> Iterator[str]:
    yield "## What is not as in the manifests"
    yield ""
    yield from _table(("of", "what", "in the manifest", "here", "why"), (
        (each.role, f"`{each.name}`", f"`{each.manifest}`", f"`{each.here}`", each.why) for each in together(result.substitutions)
    ))  # fmt: skip
    yield "## What was not covered"
    yield ""
    for text in (*result.not_covered, *NEVER):
        yield f"- {text}"


def _picture(result: Result) -> bytes | None:
    try:
        from pages.timeline import Bar, timeline  # noqa: PLC0415 - matplotlib is an extra
    except ImportError:
        return None
    colours = {"start": "f", "traffic": "b", "gate": "d", "benchmark": "e", "parsers": "f", "first prompts": "f"}
    bars = [Bar(name, begin, end, colours.get(name, "a")) for name, begin, end in result.events]
    return timeline(f"Rehearsal of {result.endpoint}", bars, "Start, traffic, the gate, the benchmark, and each fault.").png()
