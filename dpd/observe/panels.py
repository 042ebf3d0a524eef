"""Dashboards as typed data: rows of panels, each with its questions. Who draws them is another module's business."""

import hashlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, Literal

from dpd.observe import records
from dpd.observe import series as s
from dpd.observe.records import recorded
from dpd.observe.series import Series
from dpd.observe.watched import ROLES, Watched

Unit = Literal["s", "none", "percentunit", "reqps", "Bps", "bytes", "celsius", "watt", "currencyUSD", "short", "pps", "cps"]
_WINDOW: Final = "$__rate_interval"


@dataclass(frozen=True, slots=True)
class Query:
    """One question, and what its line is called."""

    expression: str
    legend: str


@dataclass(frozen=True, slots=True)
class Panel:
    """One picture. ``limits`` are lines across it: from where it is a worry. ``width`` is of 24."""

    title: str
    unit: Unit
    queries: tuple[Query, ...]
    about: str
    kind: Literal["lines", "number", "table"] = "lines"
    limits: tuple[float, ...] = ()
    width: int = 12


@dataclass(frozen=True, slots=True)
class Row:
    """Panels under a heading."""

    title: str
    panels: tuple[Panel, ...]


@dataclass(frozen=True, slots=True)
class Dashboard:
    """A page. ``uid`` is its name in every Grafana, so that a new version takes the place of the old one."""

    uid: str
    title: str
    rows: tuple[Row, ...]
    tags: tuple[str, ...] = ()

    def queries(self) -> Iterator[Query]:
        """Every question of every panel."""
        for row in self.rows:
            for panel in row.panels:
                yield from panel.queries


def endpoint_dashboard(it: Watched) -> Dashboard:
    """The page of one endpoint: prefill on the left, decode on the right, what lies between them on its own."""
    ask = Series(it, _WINDOW)
    rows = (_latency(it, ask), _load(it, ask), _cache(ask), _handover(it, ask), _throughput(it, ask), _hardware(it, ask), _cost(it))
    return Dashboard(_uid(it.environment, it.namespace, it.name), f"{it.environment} / {it.name}", rows, ("dpd", it.environment))


def fleet_dashboard(endpoints: Sequence[Watched], environment: str) -> Dashboard:
    """The page of an environment: a line for each endpoint, from what the rules record."""
    one = "{{endpoint}}"

    def lines(title: str, unit: Unit, name: str, about: str, by: str = one, limits: tuple[float, ...] = ()) -> Panel:
        return Panel(title, unit, (Query(f'{name}{{environment="{environment}"}}', by),), about, limits=limits)

    def missed(title: str, objective: str) -> Panel:
        late, counted = (f'{name}{{environment="{environment}",objective="{objective}"}}' for name in (records.LATE, records.COUNTED))
        return Panel(
            title,
            "percentunit",
            (Query(f"{late} / {counted}", one),),
            "Share that came too late for the endpoint's objective.",
            limits=(0.01,),
        )

    by_role = "{{endpoint}} {{role}}"
    cost = any(role.usd_per_hour for it in endpoints for role in (it.prefill, it.decode))
    saved = any(it.usd_per_prompt_token for it in endpoints)
    total = (
        *(
            (
                Panel(
                    "Cost per hour",
                    "currencyUSD",
                    (Query(f'sum({records.USD}{{environment="{environment}"}})', "all"),),
                    "What the answering pods cost, by their share of their nodes.",
                    "number",
                    width=6,
                ),
            )
            if cost
            else ()
        ),
        *(
            (
                Panel(
                    "Saved per hour by caches",
                    "currencyUSD",
                    (Query(f'sum({records.SAVED_USD}{{environment="{environment}"}})', "all"),),
                    "What the prompt tokens would cost that were not read again.",
                    "number",
                    width=6,
                ),
            )
            if saved
            else ()
        ),
        Panel(
            "Requests",
            "reqps",
            (Query(f'sum({records.REQUESTS}{{environment="{environment}"}})', "all"),),
            "All endpoints.",
            "number",
            width=6,
        ),
        Panel(
            "Alarms",
            "none",
            (Query(f'count(ALERTS{{alertstate="firing",environment="{environment}"}}) or vector(0)', "firing"),),
            "Alarms that fire now; the runbook has each.",
            "number",
            limits=(1,),
            width=6,
        ),
    )
    firing = Panel(
        "What fires",
        "none",
        (Query(f'ALERTS{{alertstate="firing",environment="{environment}"}}', "{{endpoint}} {{alertname}}"),),
        "Endpoint and alarm; its runbook entry has the same name.",
        "table",
        width=24,
    )
    rows = (
        Row("Now", (*total, firing)),
        Row(
            "What clients feel",
            (
                lines("Mean time to first token", "s", records.TTFT_MEAN, "Prefill and decode parts together."),
                lines("Time to first token, 99th percentile", "s", records.TTFT_P99, "Both parts' percentiles, added."),
                lines("Inter-token latency, 99th percentile", "s", records.ITL_P99, "At the decoders."),
                missed("First tokens too late", "ttft"),
                missed("Tokens too late", "itl"),
                lines("Requests by path", "reqps", records.REQUESTS, "Through prefill, or a decoder alone.", "{{endpoint}} {{path}}"),
            ),
        ),
        Row(
            "Roles",
            (
                lines("Waiting", "none", records.QUEUE, "Requests in the engines' queues.", by_role),
                lines("Running", "none", records.RUNNING, "Requests in the engines' batches.", by_role),
                lines("KV use, fullest pod", "percentunit", records.KV_USE, "Share of the KV cache.", by_role, (0.9,)),
                lines("Pods that answer", "none", records.PODS, "By role.", by_role),
            ),
        ),
        Row(
            "KV",
            (
                lines("KV throughput", "Bps", records.KV_BYTES, "Bytes that arrived at decoders."),
                lines("Speed of a rank's transfer", "Bps", records.KV_SPEED, "Bytes in a second of transfer."),
                lines("Hand-over, mean", "s", records.HANDOVER, "From the decoder's request until all KV is there."),
                lines("Size of a rank's hand-over", "bytes", records.KV_SIZE, "Small ones are all fixed cost."),
            ),
        ),
        Row(
            "Money",
            (
                *((lines("Cost per hour", "currencyUSD", records.USD, "By role.", by_role),) if cost else ()),
                *(
                    (
                        lines(
                            "Saved per hour by caches",
                            "currencyUSD",
                            records.SAVED_USD,
                            "Tokens not read again, at what reading them costs.",
                        ),
                    )
                    if saved
                    else ()
                ),
                lines("Tokens saved", "cps", records.SAVED_TOKENS, "Prompt tokens in a second that were not read again."),
            ),
        ),
    )
    return Dashboard(_uid(environment, "fleet"), f"{environment} / fleet of {len(endpoints)}", rows, ("dpd", environment))


def _uid(*parts: str) -> str:
    """At most 40 characters, as Grafana wants it."""
    text = "-".join(("dpd", *parts))
    return text if len(text) <= 40 else f"{text[:31]}-{hashlib.sha256(text.encode()).hexdigest()[:8]}"  # noqa: PLR2004


def _both(title: str, unit: Unit, ask: dict[str, str], about: str, limits: tuple[float, ...] = ()) -> tuple[Panel, ...]:
    """The same picture of prefill and decode, side by side."""
    return tuple(Panel(f"{title}: {role}", unit, (Query(expression, role),), about, limits=limits) for role, expression in ask.items())


def _each(ask: Series, how: str, name: str) -> dict[str, str]:
    return {role: f"{how} by ({ask.of.pod_label}) ({name}{{{ask.engines(role)}}})" for role in ROLES}


def _percentiles(ask: Series, histogram: str, role: str) -> tuple[Query, ...]:
    return tuple(Query(ask.quantile(q, histogram, role), f"p{q * 100:g}") for q in (0.5, 0.9, 0.99))  # type: ignore[arg-type]


def _latency(it: Watched, ask: Series) -> Row:
    about = "A decoder's part begins when prefill has ended and holds the hand-over."
    return Row(
        "What clients feel",
        (
            Panel(
                "Time to first token",
                "s",
                (
                    Query(ask.ttft_mean(), "mean, exact"),
                    Query(ask.ttft_bound(0.5), "p50, parts added"),
                    Query(ask.ttft_bound(0.99), "p99, parts added"),
                ),
                "The true time to first token: the prefill part and the decode part together.",
                limits=(it.ttft_seconds,),
            ),
            Panel("Inter-token latency", "s", _percentiles(ask, s.ITL, "decode"), "At the decoders.", limits=(it.itl_seconds,)),
            Panel("Time to first token: prefill part", "s", _percentiles(ask, s.TTFT, "prefill"), about),
            Panel("Time to first token: decode part", "s", _percentiles(ask, s.TTFT, "decode"), about),
            Panel(
                "Missed objectives",
                "percentunit",
                (Query(records.missed(it, "ttft", "5m"), "first tokens"), Query(records.missed(it, "itl", "5m"), "tokens")),
                "Share that came too late; 1 % may.",
                limits=(0.01,),
            ),
            Panel(
                "Requests by path",
                "reqps",
                (Query(ask.prefilled(), "prefill, then decode"), Query(ask.direct(), "decode alone"), *_decided(ask)),
                "What really went which way, and with llm-d what the picker decided.",
            ),
        ),
    )


def _decided(ask: Series) -> tuple[Query, ...]:
    if not ask.of.picker_pattern:
        return ()
    return (Query(f"sum by (decision_type) (rate({s.DECISIONS}{{{ask.picker()}}}[{ask.window}]))", "decided: {{decision_type}}"),)


def _load(it: Watched, ask: Series) -> Row:
    most = {"prefill": (float(it.prefill.most_sequences),), "decode": (float(it.decode.most_sequences),)}
    pod = f"{{{{{it.pod_label}}}}}"

    def side_by_side(
        title: str, unit: Unit, how: str, name: str, about: str, limits: Mapping[str, tuple[float, ...]] | None = None
    ) -> list[Panel]:
        questions = _each(ask, how, name)
        return [
            Panel(f"{title}: {role}", unit, (Query(questions[role], pod),), about, limits=(limits or {}).get(role, ())) for role in ROLES
        ]

    times = [Panel(f"Time in the queue: {role}", "s", _percentiles(ask, s.QUEUE_TIME, role), "Before the engine begins.") for role in ROLES]
    preempted = [
        Panel(f"Preemptions: {role}", "cps", (Query(ask.rate(s.PREEMPTIONS, role), role),), "Sequences thrown out of the KV cache.")
        for role in ROLES
    ]
    return Row(
        "Load, prefill beside decode",
        (
            *side_by_side("Queue", "none", "sum", s.WAITING, "Requests that wait, by pod."),
            *times,
            *side_by_side("Running", "none", "sum", s.RUNNING, "Requests in the batch, by pod; the line is the most.", most),
            *side_by_side("KV use", "percentunit", "max", s.KV_USE, "Share of the KV cache, by pod.", dict.fromkeys(ROLES, (0.9,))),
            *preempted,
            *_both("Restarts", "none", {role: ask.restarts(role, "1h") for role in ROLES}, "Of containers within an hour.", (1,)),
        ),
    )


def _cache(ask: Series) -> Row:
    money = ask.usd_saved_per_hour()
    unknown = "" if money else " What a token costs is not known: set observe.prefill_input_usd_per_million_tokens."
    return Row(
        "Caches",
        (
            *_both(
                "Prefix hits",
                "percentunit",
                {role: ask.prefix_hit_share(role) for role in ROLES},
                "Share of prompt tokens found in GPU memory.",
            ),
            Panel(
                "Tokens not read again",
                "cps",
                (Query(ask.tokens_saved(), "tokens"),),
                f"Prompt tokens found in GPU memory by either role, or by a prefiller in the tiers behind.{unknown}",
            ),
            *(
                (
                    Panel(
                        "Saved per hour",
                        "currencyUSD",
                        (Query(money, "USD per hour"),),
                        "Those tokens, at what a prefiller's time for them costs.",
                    ),
                )
                if money
                else ()
            ),
        ),
    )


def _handover(it: Watched, ask: Series) -> Row:
    mover = "NIXL, counted by vLLM" if it.pulls else "LMCache, which counts tokens and seconds"
    failed = "Transfers and notifications that failed" if it.pulls else "Tokens that decoders asked for and did not get"
    share, expired = ask.post_share(), ask.expired()
    model = (Query(ask.handover_modelled(), "model"),) if it.link.gb_per_second else ()
    counted_by_vllm = (
        (
            Panel("Post share", "percentunit", (Query(share, "post / transfer"),), "Near 1 the wire waits for the CPU.", limits=(0.9,)),
            Panel("Descriptors of a transfer", "none", (Query(ask.mean(s.DESCRIPTORS, "decode"), "mean"),), "Fewer with larger blocks."),
            Panel(
                "Expired transfers",
                "cps",
                (Query(expired, "expired"),),
                "Requests whose KV a prefiller threw away unfetched.",
                limits=(0.001,),
            ),
        )
        if it.pulls
        else ()
    )
    return Row(
        "Hand-over of KV",
        (
            Panel(
                "Hand-over time",
                "s",
                (Query(ask.handover_mean(), "mean"), *model, Query(ask.handover_quantile(0.99), "p99")),
                f"From a decoder's request until all KV is there ({mover}), beside its cost model.",
            ),
            Panel("Size of a hand-over", "bytes", (Query(ask.kv_size(), "mean of a rank"),), "Of one tensor parallel rank."),
            Panel("Failed transfers", "cps", (Query(ask.failed(), "failed"),), f"{failed} ({mover}).", limits=(0.001,)),
            *counted_by_vllm,
        ),
    )


def _throughput(it: Watched, ask: Series) -> Row:
    device = it.decode.line_rate_gb_per_second * 1e9 / it.decode.efa_devices if it.decode.efa_devices else 0.0
    floor = it.floor_gb_per_second * 1e9
    per_device = (
        (
            Panel(
                "KV throughput per EFA device",
                "Bps",
                (Query(ask.kv_device_speed(), "reached"), Query(f"vector({device:.6g})", "a device carries")),
                f"While a transfer runs; a decoder has {it.decode.efa_devices} devices for {it.ranks_on_pod} ranks.",
                limits=(device,),
            ),
        )
        if device
        else ()
    )
    counted = (
        (
            *(
                Panel(
                    f"EFA traffic: {role}",
                    "Bps",
                    (Query(ask.efa("rx_bytes", role), "received"), Query(ask.efa("tx_bytes", role), "sent")),
                    "Of all EFA devices on the nodes that run the role now.",
                )
                for role in ROLES
            ),
            *(
                Panel(
                    f"EFA errors: {role}",
                    "cps",
                    tuple(Query(ask.efa(name, role), name) for name in ("rx_drops", "rdma_read_wr_err", "rdma_write_wr_err")),
                    "Dropped packets and failed RDMA requests.",
                    limits=(0.001,),
                )
                for role in ROLES
            ),
        )
        if it.efa_counted
        else ()
    )
    return Row(
        "KV throughput",
        (
            Panel("KV throughput", "Bps", (Query(ask.kv_bytes(), "all decoders"),), "Bytes of KV that arrive in a second."),
            Panel(
                "Speed of a rank's transfer",
                "Bps",
                (Query(ask.kv_rank_speed(), "reached"), Query(f"vector({floor:.6g})", "floor")),
                "Bytes in a second of transfer. Below the floor EFA was not used, or not well.",
                limits=(floor,),
            ),
            *per_device,
            *counted,
        ),
    )


def _hardware(_: Watched, ask: Series) -> Row:
    def gpu(title: str, unit: Unit, how: str, name: str, about: str, limits: tuple[float, ...] = ()) -> tuple[Panel, ...]:
        return _both(title, unit, {role: ask.dcgm(how, name, role) for role in ROLES}, about, limits)

    return Row(
        "GPUs, prefill beside decode",
        (
            *gpu("GPU activity", "percentunit", "avg", "DCGM_FI_PROF_GR_ENGINE_ACTIVE", "Share of time in which anything runs."),
            *gpu("Tensor core activity", "percentunit", "avg", "DCGM_FI_PROF_PIPE_TENSOR_ACTIVE", "Prefill is bound by it."),
            *gpu("Memory activity", "percentunit", "avg", "DCGM_FI_PROF_DRAM_ACTIVE", "Decode is bound by it."),
            *gpu("GPU temperature, hottest", "celsius", "max", "DCGM_FI_DEV_GPU_TEMP", "Degrees."),
            *gpu("Power", "watt", "sum", "DCGM_FI_DEV_POWER_USAGE", "Of all GPUs of the role."),
            *gpu("Xid errors", "none", "max", "DCGM_FI_DEV_XID_ERRORS", "Number of the last error; 0 is none.", (1,)),
            *gpu("Memory rows that could not be remapped", "none", "max", "DCGM_FI_DEV_ROW_REMAP_FAILURE", "1: replace the node.", (1,)),
        ),
    )


def _cost(it: Watched) -> Row:
    pods = tuple(Query(recorded(records.PODS, it, role=role), role) for role in ROLES)
    if it.prefill.usd_per_hour is None or it.decode.usd_per_hour is None:
        return Row("Cost", (Panel("Pods that answer", "none", pods, "No price of the nodes is known, so pods stand for money."),))
    prices = "; ".join(str(price) for price in dict.fromkeys((it.prefill.price, it.decode.price)))
    by_role = tuple(Query(recorded(records.USD, it, role=role), role) for role in ROLES)
    return Row(
        "Cost",
        (
            Panel("Pods that answer", "none", pods, "By role."),
            Panel("Cost per hour", "currencyUSD", by_role, f"Of the answering pods, by their share of their nodes' GPUs: {prices}."),
        ),
    )
