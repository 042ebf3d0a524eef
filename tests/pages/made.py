"""A page of made-up numbers: quick, and with every kind of content."""

from dpd.planning.candidate import Band
from pages import figures
from pages.figures import Curve, Memory, Picture, Point, Threshold
from pages.plan import Number, PlanPage, Table


def point(rate: float, *, ttft: float = 500.0, itl: float = 12.0, saturated: bool = False) -> Point:
    return Point(rate, ttft, Band(ttft, 4 * ttft), itl, Band(0.8 * itl, 1.7 * itl), rate, Band(0.7 * rate, rate), rate / 100, saturated)


BOTH = Curve("2 x TP8, chunk 8192", "colocated", (point(1), point(2, itl=340.0), point(4, itl=350.0)), banded=True)
SPLIT = Curve(
    "3P:1D TP4, threshold 512", "disaggregated", (point(1), point(2, ttft=900.0), point(4, ttft=9e5, saturated=True)), banded=True
)
THRESHOLDS = tuple(
    Threshold(tokens, 800.0 + tokens, Band(800.0, 3000.0), 20.0 + tokens / 50, Band(16.0, 60.0), 1 - tokens / 8192, chosen=tokens == 512)
    for tokens in (0, 512, 4096)
)
MEMORY = (Memory("prefill TP4", (32.9, 4.0, 23.1, 0.0, 1.0), 80.0), Memory("decode TP4", (32.9, 4.0, 23.1, 12.0, 1.0), 80.0))


def pictures(name: str = "2 x TP8, chunk 8192") -> tuple[Picture, ...]:
    curves = (Curve(name, BOTH.kind, BOTH.points, banded=True), SPLIT)
    return (
        figures.latency("ttft", "Time to first token, p99", curves, 2000.0, lambda point: (point.ttft, point.ttft_band), "Lines."),
        figures.latency("itl", "Inter-token latency, p99", curves, 50.0, lambda point: (point.itl, point.itl_band), "Lines."),
        figures.goodput(curves, "Requests within both objectives", "Dotted."),
        figures.thresholds(THRESHOLDS, "Routing threshold", (2000.0, 50.0), "Dashed."),
        figures.link(curves, "How busy the KV link is", "Shares."),
        figures.memory(MEMORY, "Memory of one GPU", "Parts."),
    )


def page(word: str = "llama-70b") -> PlanPage:
    return PlanPage(
        title=f"Plan for {word} in prod",
        lead=f"{word} on 16 x H100",
        tone="yes",
        headline="Disaggregate",
        layout=f"3P:1D TP4 {word}",
        reason=f"Because of {word}.",
        numbers=(
            Number("TTFT", "1.2 to 4.9 s", "objective 2 s", "open"), Number("Gaps", "20 to 43 ms", f"objective {word}", "good"),
            Number("Late", "3 to 4 s", "objective 2 s", "bad"), Number("Headroom", "12%"),
        ),
        flips=(f"fewer requests of {word}",),
        question=(("model", word),),
        pictures=pictures(f"2 x TP8 {word}"),
        candidates=Table(("layout", "TTFT"), ((word, "1 s"), ("other", "2 s")), chosen=0),
        needs=(("PD buffer", word),),
        cost=(("nodes", f"110 USD/h, {word}"),),
        patch=f"--- {word}\n+++ {word}\n@@ -1 +1 @@\n-replicas: 1\n+replicas: 3 # {word}\n",
        notes=(f"Measured on {word}.",),
        sources=((word, "https://example.org/a?b=1&c=2"),),
        footer="Written by dpd plan.",
    )  # fmt: skip
