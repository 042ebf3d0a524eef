"""The questions that are asked of an endpoint's series, as PromQL. Whatever draws, records or alarms takes its expressions from here.

Engines of both backends are vLLM, so most questions are the same. Who moves KV differs: with llm-d a decoder pulls it and vLLM counts
every transfer (``vllm:nixl_*``); with the operator LMCache brings it and counts tokens and seconds, from which bytes follow.
"""

from dataclasses import dataclass
from typing import Final

from dpd.catalog import observability
from dpd.environment.names import GATE_NAMESPACE
from dpd.observe.watched import RoleName, Watched

TTFT: Final = "vllm:time_to_first_token_seconds"
ITL: Final = "vllm:inter_token_latency_seconds"
WHOLE: Final = "vllm:e2e_request_latency_seconds"
QUEUE_TIME: Final = "vllm:request_queue_time_seconds"
PROMPT: Final = "vllm:request_prompt_tokens"
WAITING: Final = "vllm:num_requests_waiting"
RUNNING: Final = "vllm:num_requests_running"
KV_USE: Final = "vllm:kv_cache_usage_perc"
PREFIX_HITS: Final = "vllm:prefix_cache_hits_total"
PREFIX_QUERIES: Final = "vllm:prefix_cache_queries_total"
TIER_HITS: Final = "vllm:external_prefix_cache_hits_total"
PREEMPTIONS: Final = "vllm:num_preemptions_total"
XFER: Final = "vllm:nixl_xfer_time_seconds"
POST: Final = "vllm:nixl_post_time_seconds"
BYTES: Final = "vllm:nixl_bytes_transferred"
DESCRIPTORS: Final = "vllm:nixl_num_descriptors"
FAILED: Final = ("vllm:nixl_num_failed_transfers_total", "vllm:nixl_num_failed_notifications_total")
EXPIRED: Final = "vllm:nixl_num_kv_expired_reqs_total"
RETRIEVE: Final = "lmcache:time_to_retrieve"
ARRIVED: Final = "lmcache:num_hit_tokens_total"
ASKED: Final = "lmcache:num_requested_tokens_total"
DECISIONS: Final = "llm_d_epp_disagg_decision_total"
READY: Final = "kube_pod_status_ready"
RESTARTS: Final = "kube_pod_container_status_restarts_total"
POD: Final = "kube_pod_info"
_MIB: Final = 2**20


@dataclass(frozen=True, slots=True)
class Series:
    """Questions about one endpoint, over ``window``."""

    of: Watched
    window: str = "5m"

    # How series are picked.

    def engines(self, role: RoleName, more: str = "") -> str:
        """Matchers of a role's engines."""
        return self._pods(self.of.pod_label, self.of.pattern(role), more)

    def picker(self, more: str = "") -> str:
        """Matchers of llm-d's endpoint picker."""
        return self._pods("pod", self.of.picker_pattern, more)

    def exported(self, name: str, role: RoleName | None, more: str = "") -> str:
        """Series that an exporter of the cluster has of a role's pods, whether or not its own labels won over those of the scrape."""
        pattern = self.of.pattern(role)
        own = f"{name}{{{self._pods('pod', pattern, more)}}}"
        exported = f'{name}{{exported_namespace="{self.of.namespace}",exported_pod=~"{pattern}"{"," if more else ""}{more}}}'
        return f"({own} or {exported})"

    def _pods(self, label: str, pattern: str, more: str) -> str:
        return f'namespace="{self.of.namespace}",{label}=~"{pattern}"{"," if more else ""}{more}'

    def rate(self, name: str, role: RoleName, more: str = "") -> str:
        """What a role's counter grows by in a second."""
        return f"sum(rate({name}{{{self.engines(role, more)}}}[{self.window}]))"

    def quantile(self, q: float, histogram: str, role: RoleName) -> str:
        """A quantile over all pods of a role."""
        return f"histogram_quantile({q:g}, sum by (le) (rate({histogram}_bucket{{{self.engines(role)}}}[{self.window}])))"

    def mean(self, histogram: str, role: RoleName) -> str:
        """A mean over all pods of a role."""
        return f"{self.rate(f'{histogram}_sum', role)} / {self.rate(f'{histogram}_count', role)}"

    def gauge(self, how: str, name: str, role: RoleName) -> str:
        """A gauge over all pods of a role, put together by ``how``."""
        return f"{how}({name}{{{self.engines(role)}}})"

    # What clients feel.

    def ttft_mean(self) -> str:
        """Mean time to first token: the prefill part of the requests that have one, and the decode part of all.

        A decoder's own time begins when prefill has ended and holds the hand-over. Weighted by how many requests go both ways, the sum
        is exact.
        """
        parts = f"{self.rate(f'{TTFT}_sum', 'decode')} + ({self.rate(f'{TTFT}_sum', 'prefill')} or vector(0))"
        return f"({parts}) / {self.rate(f'{TTFT}_count', 'decode')}"

    def ttft_bound(self, q: float) -> str:
        """Both parts' quantiles together: at least the quantile of the whole when the parts rise together, close above it otherwise."""
        return f"{self.quantile(q, TTFT, 'prefill')} + {self.quantile(q, TTFT, 'decode')}"

    def requests(self) -> str:
        """Requests in a second: every one ends on a decoder."""
        return self.rate(f"{WHOLE}_count", "decode")

    def prefilled(self) -> str:
        """Requests in a second that went through a prefiller."""
        return self.rate(f"{WHOLE}_count", "prefill")

    def direct(self) -> str:
        """Requests in a second that a decoder served alone."""
        return f"clamp_min({self.requests()} - ({self.prefilled()} or vector(0)), 0)"

    def long_prompts(self, end: int) -> str:
        """Prompts in a second that have more than ``end`` tokens, which must be the end of a bucket."""
        below = self.rate(f"{PROMPT}_bucket", "decode", _le(end))
        return f"{self.rate(f'{PROMPT}_count', 'decode')} - {below}"

    def slow(self, histogram: str, role: RoleName, seconds: float) -> str:
        """How many in a second took longer, by the straight line between two ends of buckets that ``histogram_quantile`` draws too."""
        ends = observability.buckets(histogram.removeprefix("vllm:"))
        whole = self.rate(f"{histogram}_count", role)
        if seconds >= ends[-1]:
            return f"({whole} - {self._within(histogram, role, ends[-1])})"
        upper = next(end for end in ends if end >= seconds)
        if upper == seconds:
            return f"({whole} - {self._within(histogram, role, upper)})"
        lower = max((end for end in ends if end < seconds), default=0.0)
        share = (seconds - lower) / (upper - lower)
        above = f"{share:.6g} * {self._within(histogram, role, upper)}"
        below = f"{1 - share:.6g} * {self._within(histogram, role, lower)}" if lower else ""
        return f"({whole} - {above}{f' - {below}' if below else ''})"

    def _within(self, histogram: str, role: RoleName, end: float) -> str:
        return self.rate(f"{histogram}_bucket", role, _le(end))

    def late_first_tokens(self) -> str:
        """Requests in a second whose first token came too late.

        A request is late when its prefill part alone leaves no time for the modelled hand-over, or its decode part alone takes all.
        """
        it = self.of
        handover = min(it.link.handover_seconds(it.most_tokens * it.kv_bytes_per_token_per_rank), it.ttft_seconds / 2)
        prefill = self.slow(TTFT, "prefill", it.ttft_seconds - handover)
        return f"({prefill} or vector(0)) + {self.slow(TTFT, 'decode', it.ttft_seconds)}"

    def late_tokens(self) -> str:
        """Tokens in a second that came too late after the one before."""
        return self.slow(ITL, "decode", self.of.itl_seconds)

    # Cache.

    def prefix_hit_share(self, role: RoleName) -> str:
        """Share of prompt tokens that a role found in its cache."""
        return f"{self.rate(PREFIX_HITS, role)} / {self.rate(PREFIX_QUERIES, role)}"

    def tokens_saved(self) -> str:
        """Prompt tokens in a second that nobody read again: found in GPU memory by either role, or by a prefiller in the tiers behind."""
        return " + ".join(
            f"({one} or vector(0))"
            for one in (self.rate(PREFIX_HITS, "prefill"), self.rate(PREFIX_HITS, "decode"), self.rate(TIER_HITS, "prefill"))
        )

    def usd_saved_per_hour(self) -> str:
        """Those tokens in money. Empty where nobody knows what one costs."""
        usd = self.of.usd_per_prompt_token
        return f"({self.tokens_saved()}) * {usd * 3600:.6g}" if usd else ""

    # Hand-over of KV.

    def kv_bytes(self) -> str:
        """KV bytes in a second that arrived at the decoders: every rank of LMCache counts the tokens that it fetched."""
        if self.of.pulls:
            return self.rate(f"{BYTES}_sum", "decode")
        return f"{self.rate(ARRIVED, 'decode')} * {self.of.kv_bytes_per_token_per_rank:.6g}"

    def kv_rank_speed(self) -> str:
        """Bytes in a second of transfer, for one rank."""
        if self.of.pulls:
            return f"{self.rate(f'{BYTES}_sum', 'decode')} / {self.rate(f'{XFER}_sum', 'decode')}"
        tokens = f"{self.rate(ARRIVED, 'decode')} / {self.rate(f'{RETRIEVE}_sum', 'decode')}"
        return f"{tokens} * {self.of.kv_bytes_per_token_per_rank:.6g}"

    def kv_device_speed(self) -> str:
        """The same for one of the pod's EFA devices. Empty where the pod has none."""
        it = self.of
        return f"({self.kv_rank_speed()}) * {it.ranks_on_pod / it.decode.efa_devices:.6g}" if it.decode.efa_devices else ""

    def kv_size(self) -> str:
        """Mean bytes of one hand-over, for one rank."""
        if self.of.pulls:
            return self.mean(BYTES, "decode")
        per_request = f"{self.rate(ARRIVED, 'decode')} / {self.rate(f'{RETRIEVE}_count', 'decode')}"
        return f"{per_request} * {self.of.kv_bytes_per_token_per_rank:.6g}"

    def handover_mean(self) -> str:
        """Mean seconds of one hand-over."""
        return self.mean(XFER if self.of.pulls else RETRIEVE, "decode")

    def handover_quantile(self, q: float) -> str:
        """A quantile of the seconds of a hand-over."""
        return self.quantile(q, XFER if self.of.pulls else RETRIEVE, "decode")

    def handover_modelled(self) -> str:
        """What a hand-over of the present size should take: fixed, bytes over the link, and with NIXL every descriptor's posting."""
        link = self.of.link
        wire = f"{link.fixed_seconds + link.overhead_seconds:.6g} + ({self.kv_size()}) / {link.gb_per_second * 1e9:.6g}"
        if not self.of.pulls:
            return wire
        return f"{wire} + ({self.mean(DESCRIPTORS, 'decode')}) * {self.of.post_seconds_per_descriptor:.6g}"

    def post_share(self) -> str:
        """Share of a transfer that goes by before everything is posted. Empty with LMCache, which does not count it."""
        return f"{self.rate(f'{POST}_sum', 'decode')} / {self.rate(f'{XFER}_sum', 'decode')}" if self.of.pulls else ""

    def failed(self) -> str:
        """Transfers in a second that failed; with LMCache tokens in a second that were asked for and did not come."""
        if self.of.pulls:
            return " + ".join(f"({self.rate(name, 'decode')} or vector(0))" for name in FAILED)
        return f"clamp_min({self.rate(ASKED, 'decode')} - {self.rate(ARRIVED, 'decode')}, 0)"

    def expired(self) -> str:
        """Requests in a second whose KV a prefiller threw away unfetched. Empty with LMCache, which does not count it."""
        return self.rate(EXPIRED, "prefill") if self.of.pulls else ""

    # The wire.

    def efa(self, counter: str, role: RoleName | None) -> str:
        """What a counter of the EFA devices grows by in a second, on the nodes that run the role's pods now."""
        nodes = f"group by (node) ({self.exported(POD, role)})"
        counted = f'sum by (node) (rate(node_amazonefa_{counter}{{namespace="{GATE_NAMESPACE}"}}[{self.window}]))'
        return f"sum({counted} * on (node) {nodes})"

    # Nodes and money.

    def dcgm(self, how: str, name: str, role: RoleName | None) -> str:
        """A GPU counter over the GPUs of a role's pods."""
        return f"{how}({self.exported(name, role)})"

    def pods(self, role: RoleName) -> str:
        """Pods of a role that answer."""
        label = self.of.pod_label
        return f"count(count by ({label}) ({RUNNING}{{{self.engines(role)}}}))"

    def usd_per_hour(self, role: RoleName) -> str:
        """What the answering pods of a role cost in an hour, by their share of their nodes' GPUs. Empty where no price is known."""
        usd = self.of.role(role).usd_per_hour
        return f"({self.pods(role)}) * {usd:.6g}" if usd else ""

    def restarts(self, role: RoleName | None, window: str) -> str:
        """Restarts of a role's containers within ``window``."""
        pattern = self.of.pattern(role)
        own = f"{RESTARTS}{{{self._pods('pod', pattern, '')}}}[{window}]"
        exported = f'{RESTARTS}{{exported_namespace="{self.of.namespace}",exported_pod=~"{pattern}"}}[{window}]'
        return f"sum(increase({own}) or increase({exported}))"


def _le(end: float) -> str:
    """Matcher of a bucket's end, which some write with a decimal place and some without."""
    text = f"{end:g}"
    return f'le=~"{text}([.]0)?"' if text.isdecimal() else f'le="{text}"'
