"""What rules record of every endpoint under names of its own: short to ask for, cheap to draw, the same in every backend."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

from dpd.observe import series as s
from dpd.observe.series import Series
from dpd.observe.watched import ROLES, Watched

TTFT_MEAN: Final = "dpd:ttft_seconds:mean"
TTFT_P99: Final = "dpd:ttft_seconds:p99"
ITL_P99: Final = "dpd:itl_seconds:p99"
REQUESTS: Final = "dpd:requests:rate"
QUEUE: Final = "dpd:waiting:sum"
RUNNING: Final = "dpd:running:sum"
KV_USE: Final = "dpd:kv_use:max"
PODS: Final = "dpd:pods:count"
KV_BYTES: Final = "dpd:kv_bytes:rate"
KV_SPEED: Final = "dpd:kv_rank_bytes_per_second:mean"
KV_SIZE: Final = "dpd:kv_transfer_bytes:mean"
HANDOVER: Final = "dpd:handover_seconds:mean"
SAVED_TOKENS: Final = "dpd:tokens_saved:rate"
SAVED_USD: Final = "dpd:usd_saved_per_hour"
USD: Final = "dpd:usd_per_hour"
LATE: Final = "dpd:late:rate"
COUNTED: Final = "dpd:counted:rate"


@dataclass(frozen=True, slots=True)
class Record:
    """A series that is recorded. ``labels`` come besides those of the endpoint."""

    name: str
    expression: str
    labels: tuple[tuple[str, str], ...] = ()


def records(it: Watched) -> Iterator[Record]:
    """All that is recorded of an endpoint."""
    ask = Series(it)
    whole = {
        TTFT_MEAN: ask.ttft_mean(),
        TTFT_P99: ask.ttft_bound(0.99),
        ITL_P99: ask.quantile(0.99, s.ITL, "decode"),
        KV_BYTES: ask.kv_bytes(),
        KV_SPEED: ask.kv_rank_speed(),
        KV_SIZE: ask.kv_size(),
        HANDOVER: ask.handover_mean(),
        SAVED_TOKENS: ask.tokens_saved(),
        SAVED_USD: ask.usd_saved_per_hour(),
    }
    yield from (Record(name, expression) for name, expression in whole.items() if expression)
    yield Record(REQUESTS, ask.prefilled(), (("path", "prefill_decode"),))
    yield Record(REQUESTS, ask.direct(), (("path", "decode_only"),))
    yield Record(LATE, ask.late_first_tokens(), (("objective", "ttft"),))
    yield Record(COUNTED, ask.rate(f"{s.TTFT}_count", "decode"), (("objective", "ttft"),))
    yield Record(LATE, ask.late_tokens(), (("objective", "itl"),))
    yield Record(COUNTED, ask.rate(f"{s.ITL}_count", "decode"), (("objective", "itl"),))
    for role in ROLES:
        label = (("role", role),)
        yield Record(QUEUE, ask.gauge("sum", s.WAITING, role), label)
        yield Record(RUNNING, ask.gauge("sum", s.RUNNING, role), label)
        yield Record(KV_USE, ask.gauge("max", s.KV_USE, role), label)
        yield Record(PODS, ask.pods(role), label)
        if usd := ask.usd_per_hour(role):
            yield Record(USD, usd, label)


def missed(it: Watched, objective: str, window: str) -> str:
    """Share that missed an objective, ``ttft`` or ``itl``, over ``window``: of both rates their means, so that busy times weigh more."""
    late, counted = (f"avg_over_time({recorded(name, it, objective=objective)}[{window}])" for name in (LATE, COUNTED))
    return f"{late} / {counted}"


def recorded(name: str, it: Watched, **more: str) -> str:
    """A series that a rule recorded of an endpoint, with ``more`` labels where it has several."""
    labels = {"environment": it.environment, "namespace": it.namespace, "endpoint": it.name, **more}
    return _named(name, labels)


def _named(name: str, labels: dict[str, str]) -> str:
    said = ",".join(f'{key}="{value}"' for key, value in labels.items())
    return f"{name}{{{said}}}"
