"""The alarms of an endpoint: when each fires, what it means, what to look at, what to change.

An expression must be false when nothing happens: every ratio is asked only where there is traffic to divide by.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Final, Literal

from dpd.catalog import observability, serving
from dpd.observe import records
from dpd.observe import series as s
from dpd.observe.records import recorded
from dpd.observe.series import Series
from dpd.observe.watched import ROLES, Watched

Severity = Literal["critical", "warning"]
_LARGE_BYTES: Final = 64 * 2**20
"""Bytes of one rank's transfer from which its speed says something of the network: small ones are all fixed cost (our choice)."""
_MOVING_BYTES: Final = 50e6
"""KV bytes in a second from which EFA's counters must have moved as well (our choice)."""
_UNSEEN: Final = 0.5
"""Share of the KV bytes that EFA's counters must show at least."""
_POSTING: Final = 0.9
_BEYOND_MODEL: Final = {"llm-d": 2.0, "operator": 3.0}
"""How many times its model a hand-over may take. LMCache's time holds the copy out of its buffer too."""
_FULL: Final = 0.9
_IDLE_KV: Final = 0.3
_QUEUE: Final = 3
"""Waiting requests for each pod from which a queue is no burst."""
_IDLE_RUNNING: Final = 0.5
_LONG_PROMPTS: Final = 0.02
"""Long prompts in a second from which it is known that there are some: about one a minute."""
_BYPASSED: Final = 0.1
_BUDGET: Final = 0.01
"""Share of requests that may miss a 99th percentile."""
_BURNS: Final[tuple[tuple[str, str, float, Severity], ...]] = (("1h", "5m", 14.4, "critical"), ("6h", "30m", 6, "warning"))
"""Long window, short window, how many times its budget: https://sre.google/workbook/alerting-on-slos/"""


@dataclass(frozen=True, slots=True)
class Runbook:
    """What somebody does who was woken by an alarm."""

    means: str
    check: tuple[str, ...]
    change: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Kind:
    """A kind of alarm. ``ask`` gives the expression for an endpoint, or nothing where it has nothing to go wrong or to count it by."""

    name: str
    title: str
    severity: Severity
    after: str
    """How long the expression holds before it fires."""
    ask: Callable[[Watched], str]
    runbook: Runbook
    only: str = ""
    """For which endpoints, in words; empty for all."""


@dataclass(frozen=True, slots=True)
class Alarm:
    """A kind of alarm for one endpoint."""

    kind: Kind
    expression: str


def alarms(it: Watched) -> Iterator[Alarm]:
    """All alarms of an endpoint."""
    for kind in KINDS:
        if expression := kind.ask(it):
            yield Alarm(kind, expression)


def _failing(it: Watched) -> str:
    ask = Series(it, "10m")
    if it.pulls:
        return f"{ask.failed()} > 0"
    lost = f"({ask.failed()}) / {ask.rate(s.ASKED, 'decode')}"
    return f"{lost} > 0.01"


def _expiring(it: Watched) -> str:
    expired = Series(it, "10m").expired()
    return f"{expired} > 0" if expired else ""


def _large(it: Watched) -> str:
    return f"{recorded(records.KV_SIZE, it)} > {_LARGE_BYTES}"


def _slow(it: Watched) -> str:
    return f"{recorded(records.KV_SPEED, it)} < {it.floor_gb_per_second * 1e9:.6g} and {_large(it)}"


def _fell_back(it: Watched) -> str:
    """Slower than EFA can be; or the connector counts bytes that no EFA device has seen."""
    slow = f"({recorded(records.KV_SPEED, it)} < {serving.least_kv_gb_per_second() * 1e9:.6g} and {_large(it)})"
    if not it.efa_counted:
        return slow
    counted, moved = Series(it).efa("rx_bytes", "decode"), recorded(records.KV_BYTES, it)
    return f"{slow} or ({moved} > {_MOVING_BYTES:.6g} and on () ({counted} < {_UNSEEN} * sum({moved})))"


def _posting(it: Watched) -> str:
    share = Series(it).post_share()
    return f"{share} > {_POSTING} and on () ({_large(it)})" if share else ""


def _beyond_model(it: Watched) -> str:
    if not it.link.gb_per_second:
        return ""
    modelled = Series(it).handover_modelled()
    return f"sum({recorded(records.HANDOVER, it)}) > {_BEYOND_MODEL[it.backend]:g} * ({modelled}) and on () ({_large(it)})"


def long_prompt_end(it: Watched) -> int | None:
    """End of the bucket above which prompts must go through a prefiller, or ``None`` when none can be that long."""
    ends = observability.token_buckets(it.most_tokens)
    return next((end for end in ends if end >= max(1, it.threshold_tokens)), None)


def _bypassed(it: Watched) -> str:
    if (end := long_prompt_end(it)) is None:
        return ""
    ask = Series(it, "10m")
    long_prompts = f"({ask.long_prompts(end)})"
    # What a decoder has cached need not go through a prefiller, so then only none at all is a sign.
    most = f"{_BYPASSED} * {long_prompts}" if not it.counts_cached else "0.001"
    return f"({ask.prefilled()} or vector(0)) < {most} and {long_prompts} > {_LONG_PROMPTS}"


def _no_prefiller(it: Watched) -> str:
    """Nobody ready, as kube-state-metrics sees it where there is one; else nobody answering."""
    ask = Series(it)
    ready = f"(sum({ask.exported(s.READY, 'prefill', _TRUE)}) or vector(0)) < 1"
    return f"({ready} and on () (count({s.READY}) > 0)) or absent({s.RUNNING}{{{ask.engines('prefill')}}})"


_TRUE: Final = 'condition="true"'


def _kv_full(it: Watched) -> str:
    return f"{Series(it).gauge('max', s.KV_USE, 'decode')} > {_FULL}"


def _prefill_behind(it: Watched) -> str:
    ask = Series(it)
    idle = f"{ask.gauge('avg', s.KV_USE, 'decode')} < {_IDLE_KV}"
    few = f"{ask.gauge('avg', s.RUNNING, 'decode')} < {_IDLE_RUNNING * it.decode.most_sequences:g}"
    return f"{ask.gauge('avg', s.WAITING, 'prefill')} > {_QUEUE} and {idle} and {few} and {ask.gauge('avg', s.WAITING, 'decode')} < 1"


def _decode_behind(it: Watched) -> str:
    ask = Series(it)
    idle = f"{ask.gauge('avg', s.RUNNING, 'prefill')} < {_IDLE_RUNNING} and {ask.gauge('avg', s.WAITING, 'prefill')} < 1"
    return f"{ask.gauge('avg', s.WAITING, 'decode')} > {_QUEUE} and {idle}"


def _burning(objective: str, severity: Severity) -> Callable[[Watched], str]:
    def ask(it: Watched) -> str:
        long, short, times = next((long, short, times) for long, short, times, level in _BURNS if level == severity)
        return " and ".join(f"{records.missed(it, objective, window)} > {times * _BUDGET:g}" for window in (long, short))

    return ask


def _absent(it: Watched) -> str:
    ask = Series(it)
    return " or ".join(f"absent({s.RUNNING}{{{ask.engines(role)}}})" for role in ROLES)


def _connector_absent(it: Watched) -> str:
    """The engine answers and counts requests through prefill, and who moves KV exports nothing."""
    ask = Series(it, "10m")
    name = f"{s.XFER}_count" if it.pulls else s.ASKED
    return f"absent({name}{{{ask.engines('decode')}}}) and on () ({ask.prefilled()} > 0)"


def _gpu(it: Watched) -> str:
    ask = Series(it)
    return " or ".join(f"({ask.dcgm('max', name, None)} > 0)" for name in ("DCGM_FI_DEV_XID_ERRORS", "DCGM_FI_DEV_ROW_REMAP_FAILURE"))


def _efa_errors(it: Watched) -> str:
    if not it.efa_counted:
        return ""
    ask = Series(it, "10m")
    return " or ".join(f"({ask.efa(name, None)} > 0)" for name in ("rx_drops", "rdma_read_wr_err", "rdma_write_wr_err"))


def _restarted(it: Watched) -> str:
    return f"{Series(it).restarts(None, '30m')} > 0"


_LLMD: Final = "llm-d: LMCache does not count it"
_EFA_CHECK: Final = "`kubectl logs` of a decoder: a line with `provider=efa`, and `Backend LIBFABRIC was instantiated` (llm-d)"
KINDS: Final[tuple[Kind, ...]] = (
    Kind(
        "KvTransfersFailing",
        "KV transfers fail",
        "critical",
        "2m",
        _failing,
        Runbook(
            "Decoders ask for KV and do not get it. With llm-d transfers or their notifications fail; with the operator more "
            "than 1 % of the "
            "tokens that decoders ask LMCache for do not come, and are read again on the decoder. On hybrid models a failed transfer can "
            "end in an answer that is wrong, so treat it as one until you know better "
            "([report](https://github.com/vllm-project/vllm/issues/52234)).",
            (
                "the panels Failed transfers and Restarts: a prefiller that went away takes its KV with it",
                "the decoder's log at that time: `NIXL`, `Retrieved 0 out of`, `remote`",
                "whether both roles carry the same revision and image: `kubectl get pods -L dpd/revision`",
            ),
            (
                (
                    "one decoder alone fails after a prefiller restarted: restart that decoder, it may hold a stale peer "
                    "([report](https://github.com/vllm-project/vllm/issues/49238))"
                ),
                "`kv.load_failure` decides whether such a request fails or is read again; the operator always reads again",
                "same `PYTHONHASHSEED` and image in both roles (the checks set both)",
            ),
        ),
    ),
    Kind(
        "KvTransfersExpiring",
        "KV expires before a decoder fetches it",
        "warning",
        "2m",
        _expiring,
        Runbook(
            "Prefillers keep KV for a decoder for a lease, then throw it away. Decoders come too late: they queue, or a "
            "request was dropped "
            "between the roles.",
            ("the panels Queue and KV use of the decoders: a full decoder does not fetch", "errors of the router between the two hops"),
            ("more decoders, or fewer concurrent sequences for each", "vLLM 0.22 or newer, whose leases are renewed while a request waits"),
        ),
        only=_LLMD,
    ),
    Kind(
        "KvThroughputLow",
        "Large KV transfers are slower than EFA's floor",
        "warning",
        "10m",
        _slow,
        Runbook(
            "A rank moves large KV slower than a twentieth of what its EFA devices carry (never below 1 GB/s). The link is "
            "the bottleneck of "
            "every request that goes through prefill: more prefillers will not help.",
            (
                "the panel KV throughput per EFA device, beside its line rate",
                "EFA traffic and errors of both roles' nodes",
                "that both roles are in one availability zone, and no other job uses the same devices",
            ),
            (
                "`efa_devices` left out, so that a pod has the share of its GPUs",
                "`kv.block_size: 128` (llm-d): fewer, larger descriptors",
                "NIXL 1.3.2 or newer with one posting thread for each device (llm-d; the tool sets it)",
            ),
        ),
    ),
    Kind(
        "KvPostingBound",
        "Posting takes nearly all of a KV transfer",
        "warning",
        "10m",
        _posting,
        Runbook(
            "More than nine tenths of a transfer pass before the last descriptor is posted. The wire waits for the CPU, and the decoder's "
            "step waits with it: inter-token latency suffers while large prompts arrive.",
            ("the panel Post share, and descriptors for each transfer", "the block size in the engine's start-up log"),
            (
                "`kv.block_size: 128`: an eighth of the descriptors of 16",
                "NIXL 1.3.2 or newer, whose threads post side by side",
                "cross-layer blocks, where model and attention backend allow them",
            ),
        ),
        only=_LLMD,
    ),
    Kind(
        "KvHandoverSlow",
        "The hand-over takes longer than its cost model",
        "warning",
        "15m",
        _beyond_model,
        Runbook(
            "A hand-over takes more than twice (with LMCache three times) what size, link and posting explain. Something besides size has "
            "changed: contention, a lost device, a fallback that is not complete.",
            (
                "the panel Hand-over time beside its model: since when, and after which deployment",
                "EFA errors; GPU and PCIe of one node against others",
                "`dpd plan` for the endpoint: its model of the hand-over",
            ),
            ("a node that stands out: drain and replace it", "if the model is wrong for your nodes, calibrate it: `dpd calibrate`"),
        ),
    ),
    Kind(
        "KvFellBackFromEfa",
        "KV goes over TCP or through host memory",
        "critical",
        "5m",
        _fell_back,
        Runbook(
            "Large transfers below 1 GB/s a rank are what TCP and UCX's staging through host memory look like; or the connector counts KV "
            "that no EFA device has seen. Requests succeed, first tokens come seconds late.",
            (
                _EFA_CHECK,
                "`kubectl get pod -o yaml`: `vpc.amazonaws.com/efa` among the requests of both roles",
                "the security group of the nodes admits all traffic from and to itself",
            ),
            (
                "the backend LIBFABRIC in the transfer settings, not UCX (the tool sets it)",
                "the image of the catalog, which has EFA's libfabric",
                "run the health gate: it names the layer that is broken",
            ),
        ),
    ),
    Kind(
        "PrefillBypassed",
        "Long prompts do not go through prefill",
        "warning",
        "10m",
        _bypassed,
        Runbook(
            "Prompts longer than the threshold arrive, and fewer than a tenth of them pass a prefiller: decoders read them, "
            "and every other "
            "request's tokens wait meanwhile.",
            (
                "the panel Requests by path",
                (
                    "the router's decisions: `llm_d_epp_disagg_decision_total`, or the operator's log line "
                    "`Conditional routing: … disaggregate=`"
                ),
                "the prompts: the router counts characters and not tokens, which is too few for some scripts",
            ),
            (
                "a lower `routing.threshold_tokens`",
                "prefillers that are ready: see NoReadyPrefiller",
                "`dpd check` again: a router that counts nothing as long is refused there",
            ),
        ),
    ),
    Kind(
        "NoReadyPrefiller",
        "No prefiller is ready",
        "critical",
        "3m",
        _no_prefiller,
        Runbook(
            "Long prompts fail, or decoders read them, as `routing.no_prefiller` says.",
            (
                "`kubectl get pods` of the role, and their events: capacity, image, weights",
                "whether an update took the last one: `max_surge`",
            ),
            ("free or add a node of the role's group", "roll back what was deployed last"),
        ),
    ),
    Kind(
        "DecodeKvNearlyFull",
        "Decoders' KV cache is nearly full",
        "warning",
        "10m",
        _kv_full,
        Runbook(
            "A decoder uses more than nine tenths of its KV cache. It will preempt sequences and fetch no more KV, which then "
            "expires on the "
            "prefillers.",
            ("the panels KV use and Preemptions by pod: one pod, or all", "lengths of answers: has the traffic changed?"),
            ("more decoders", "fewer `max_concurrent_sequences`", "`kv.dtype: fp8`, which halves what a token takes"),
        ),
    ),
    Kind(
        "PrefillPoolTooSmall",
        "Prefill queues while decoders idle",
        "warning",
        "10m",
        _prefill_behind,
        Runbook(
            "The ratio of the pools does not fit the traffic: prompts wait for prefillers, and decoders have room.",
            ("the panels Queue and Running, roles side by side", "prompt lengths and prefix hits: has the traffic changed?"),
            (
                "a prefiller more, or a decoder less: `dpd plan` names the ratio for a traffic",
                "a higher `prefill.autoscaling.max_replicas`",
            ),
        ),
    ),
    Kind(
        "DecodePoolTooSmall",
        "Decode queues while prefillers idle",
        "warning",
        "10m",
        _decode_behind,
        Runbook(
            "The ratio of the pools does not fit the traffic: requests wait for decoders, and prefillers have nothing to do.",
            ("the panels Queue and KV use", "answer lengths: has the traffic changed?"),
            (
                "a decoder more, or a prefiller less: `dpd plan` names the ratio for a traffic",
                "a lower `routing.threshold_tokens`, when decoders read prompts",
            ),
        ),
    ),
    *(
        Kind(
            f"{what}Burn{speed}",
            f"The {words} objective is being missed, {pace}",
            severity,
            "2m",
            _burning(objective, severity),
            Runbook(
                f"Over {long} and over {short} more than {times:g} times the 1 % of {things} that may miss the objective did: "
                f"at this pace a "
                f"month's budget is gone in {gone}.",
                (f"the panel {panel}: which part, which pods, since when", "other alarms of the endpoint: they name the cause"),
                ("as the alarm that names the cause says", "an objective that was never met is a wish: compare with `dpd plan`"),
            ),
        )
        for what, words, things, objective, panel in (
            ("Ttft", "time to first token", "requests", "ttft", "Time to first token"),
            ("Itl", "inter-token latency", "tokens", "itl", "Inter-token latency"),
        )
        for (long, short, times, severity), speed, pace, gone in zip(
            _BURNS, ("Fast", "Slow"), ("fast", "steadily"), ("two days", "five days"), strict=True
        )
    ),
    Kind(
        "EngineSeriesAbsent",
        "A role exports no metrics",
        "critical",
        "10m",
        _absent,
        Runbook(
            "Nobody sees this role: none of its pods runs, or whoever collects metrics does not reach them. All other alarms "
            "of the role are "
            "blind meanwhile.",
            ("pods of the role", "targets of the collector: is the namespace allowed (label `dpd/scrapes-metrics`), are there monitors?"),
            ("the metrics path of `observe.metrics`", "the network policy's admitted namespaces"),
        ),
    ),
    Kind(
        "KvConnectorSeriesAbsent",
        "The engine serves, and its KV connector exports nothing",
        "critical",
        "15m",
        _connector_absent,
        Runbook(
            "LMCache fails open: when it cannot start, the engine serves without it, reads every prompt itself and says so in "
            "its log alone. "
            "An absent series is the only sign. The same holds for a connector that was never loaded.",
            (
                "the decoder's log from its start: `LMCacheManager initialized`, `NixlConnector`",
                "that the prefiller has the other half: `pd_role`",
            ),
            ("restart the decoder once the cause is gone", "the health gate after each deployment: it proves the hand-over"),
        ),
    ),
    Kind(
        "GpuErrors",
        "A GPU reports errors",
        "critical",
        "1m",
        _gpu,
        Runbook(
            "The last error of a GPU (Xid) is not 0, or a row of its memory could not be remapped. Some are the program's "
            "fault, most of the "
            "critical ones the node's.",
            (
                "the number in [NVIDIA's list](https://docs.nvidia.com/deploy/xid-errors/)",
                "HyperPod's health monitoring agent: it may replace the node by itself",
            ),
            ("drain and replace the node: `aws sagemaker batch-reboot-cluster-nodes`, or `batch-replace-cluster-nodes`",),
        ),
    ),
    Kind(
        "EfaErrors",
        "EFA devices drop packets or fail requests",
        "warning",
        "5m",
        _efa_errors,
        Runbook(
            "Devices on nodes of this endpoint count dropped packets or failed RDMA requests. Libfabric sends again, so it "
            "shows as latency first.",
            ("the panel EFA errors: one node, or all", "other jobs on the node"),
            ("drain and replace a node that stands out", "EFA's driver and libfabric of one release"),
        ),
        only="endpoints whose EFA counters are read (`gate.efa_counters`)",
    ),
    Kind(
        "WorkersRestarting",
        "Workers restart",
        "warning",
        "0m",
        _restarted,
        Runbook(
            "A container of a prefill or decode pod started again within half an hour. KV that it held is gone, and peers may keep a stale "
            "address for up to an hour.",
            ("`kubectl describe pod`: the last state and its exit code (137 is memory)", "the log before: `kubectl logs --previous`"),
            ("after a prefiller restarted: restart decoders whose transfers fail", "more memory, or a smaller CPU tier"),
        ),
    ),
)
