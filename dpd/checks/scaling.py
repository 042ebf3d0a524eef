"""Rules about policies that scale: none may swing, take the last decoder away, or ask for what the cluster has not."""

import re
from collections.abc import Iterator
from typing import Any, Final

from dpd.checks.registry import Context, Problem, check
from dpd.environment.endpoint import Autoscaling, TokenScaling, is_workspace
from dpd.environment.environment import Environment
from dpd.finding import Level
from dpd.scaling.policy import HPA_TOLERANCE, LONGEST_WINDOW_SECONDS, SMOOTHING_SECONDS, down_window_seconds
from dpd.scaling.velocity import of_role as velocity_of
from dpd.sizing.fleet import PlacedRole, roles
from dpd.sizing.startup import startup_budget_seconds

_HPA: Final = "https://kubernetes.io/docs/concepts/workloads/autoscaling/horizontal-pod-autoscale/"
_LLMD: Final = "https://github.com/llm-d/llm-d/blob/main/guides/workload-autoscaling/keda-epp-token-aware/README.md"
_KEDA: Final = "https://keda.sh/docs/2.20/scalers/prometheus/"
_OPERATOR: Final = "https://docs.aws.amazon.com/sagemaker/latest/dg/sagemaker-hyperpod-model-deployment-autoscaling.html"
_VELOCITY: Final = "https://arxiv.org/abs/2512.03416"

_NOT_A_SUM: Final = re.compile(r"[\s(]*(avg|min|max|quantile|stddev|stdvar|median)\b(?!_over_time)", re.IGNORECASE)
"""A query whose outermost aggregation forgets how many pods there are."""
_OF_ONE_POD: Final = frozenset({"Average", "Maximum", "Minimum"})
_RAW_SCALERS: Final = {"decodingAutoScaling": "decode", "prefillAutoScaling": "prefill"}


def _scaled(environment: Environment) -> Iterator[tuple[PlacedRole, Autoscaling]]:
    for placed in roles(environment):
        if placed.role.autoscaling is not None:
            yield placed, placed.role.autoscaling


def _by_tokens(environment: Environment) -> Iterator[tuple[PlacedRole, Autoscaling, TokenScaling]]:
    for placed, scaling in _scaled(environment):
        if scaling.tokens is not None:
            yield placed, scaling, scaling.tokens


@check(
    "SCL001", "What scales a role is a sum over its pods",
    why="The autoscaler divides the signal by the target of one pod. An average falls when a pod comes, so that it is sent away again, "
        "and rises when it has gone: the role swings for as long as the load lasts, and never gets past the pods that one target allows.",
    link=_LLMD, seen_in=(_KEDA,),
)  # fmt: skip
def _sums(environment: Environment, _: Context) -> Iterator[Problem]:
    for placed, scaling in _scaled(environment):
        place = f"{placed.path}.autoscaling"
        for index, asked in enumerate(scaling.prometheus):
            if found := _NOT_A_SUM.match(asked.query):
                message = f"begins with {found[1]}(), which does not grow with the number of pods"
                yield Problem(f"{place}.prometheus[{index}].query", message, "use sum() over all pods of the role", asked.query)
        for index, watched in enumerate(scaling.cloudwatch):
            if watched.statistic in _OF_ONE_POD:
                message = f"{watched.statistic} of a metric that each pod reports does not grow with the number of pods"
                fix = "use Sum, or acknowledge this for a metric that is one number for the whole role"
                path = f"{place}.cloudwatch[{index}].statistic"
                yield Problem(path, message, fix, watched.statistic, "Sum or SampleCount", level=Level.WARNING)


@check(
    "SCL002", "A pod is kept for as long as another one takes to start",
    why="Traffic dips for minutes. A pod that is sent away in a dip is missed when the load returns, and its successor reads weights for "
        "as long as the start-up budget: the role swings, each time with a queue.",
    link=_HPA, seen_in=(_LLMD,),
)  # fmt: skip
def _window(environment: Environment, _: Context) -> Iterator[Problem]:
    for placed, scaling in _scaled(environment):
        budget = min(LONGEST_WINDOW_SECONDS, startup_budget_seconds(placed.endpoint.model.shape))
        window = down_window_seconds(placed.endpoint, scaling)
        if window < budget:
            message = f"a pod goes after {window} s of less load, and one may take {budget} s to start"
            yield Problem(
                f"{placed.path}.autoscaling.scale_down_stabilization_seconds", message, "leave it out", window, f"{budget} or more"
            )


@check(
    "SCL003", "A data point is younger than the window in which it counts",
    why="While one data point lasts, every look at it says the same. When it is older than the time after which a pod goes, a single "
        "quiet period takes pods away, and the next one brings them back.",
    link=_OPERATOR,
)  # fmt: skip
def _period(environment: Environment, _: Context) -> Iterator[Problem]:
    for placed, scaling in _scaled(environment):
        window = down_window_seconds(placed.endpoint, scaling)
        for index, watched in enumerate(scaling.cloudwatch):
            if watched.period_seconds > window:
                message = f"a data point covers {watched.period_seconds} s; a pod goes after {window} s"
                path = f"{placed.path}.autoscaling.cloudwatch[{index}].period_seconds"
                yield Problem(path, message, "use a period of 60", watched.period_seconds, f"at most {window}")


@check(
    "SCL004", "A role scales before its pods are saturated",
    why="Kubernetes ignores what is less than a tenth above the target. When the target and that tenth reach what a pod can do, the rate "
        "never passes it: a saturated pod does no more than it does, and the queue grows with the signal at rest.",
    link=_HPA, seen_in=(_VELOCITY,),
)  # fmt: skip
def _room(environment: Environment, _: Context) -> Iterator[Problem]:
    most = 1 / (1 + HPA_TOLERANCE)
    for placed, _scaling, tokens in _by_tokens(environment):
        if tokens.utilization >= most:
            reached = tokens.utilization * (1 + HPA_TOLERANCE)
            message = f"pods come at {tokens.utilization:g} x {1 + HPA_TOLERANCE:g} = {reached:.2f} of what the role can do"
            yield Problem(f"{placed.path}.autoscaling.tokens.utilization", message, "use 0.7", tokens.utilization, f"less than {most:.2f}")


@check(
    "SCL005", "A prefiller comes while the TTFT objective still holds",
    why="A prompt waits for what is before it and is then read. When as much may wait as the objective allows in all, every prompt at the "
        "threshold is late by its own reading, and pods come after the promise is broken.",
    link=_LLMD,
)  # fmt: skip
def _backlog(environment: Environment, _: Context) -> Iterator[Problem]:
    for placed, _scaling, tokens in _by_tokens(environment):
        path = f"{placed.path}.autoscaling.tokens.backlog_seconds"
        if placed.name == "decode":
            if tokens.backlog_seconds is not None:
                message = "a decoder's signal is its KV cache, which utilization bounds; seconds of reading are a prefiller's"
                yield Problem(path, message, "remove it", tokens.backlog_seconds)
            continue
        velocity = velocity_of(placed.endpoint, placed.name, placed.instance) if placed.instance else None
        if velocity is None:
            continue
        prompt = min(placed.endpoint.model.max_model_len, max(placed.endpoint.routing.threshold_tokens, 1))
        objective, reading = placed.endpoint.objectives.ttft_p99_ms / 1e3, prompt / velocity
        if reading >= objective:
            message = f"{prompt:,} tokens at {velocity:,.0f} a second take {reading:.2f} s alone; the objective is {objective:g} s"
            fix = "loosen objectives.ttft_p99_ms, or use more GPUs for a prefiller: more prefillers do not help"
            yield Problem(f"{placed.endpoint_path}.objectives.ttft_p99_ms", message, fix, placed.endpoint.objectives.ttft_p99_ms)
        elif tokens.backlog_seconds is not None and tokens.backlog_seconds > objective - reading:
            waits = f"{tokens.backlog_seconds:g} s may wait, and {prompt:,} tokens are read in {reading:.2f} s"
            message = f"{waits}; the objective is {objective:g} s"
            limit = f"at most {objective - reading:.2f}"
            yield Problem(path, message, "leave it out", tokens.backlog_seconds, limit)


@check(
    "SCL006", "The token velocity of a role that scales by tokens is known",
    why="The signals are tokens over what one pod does in a second. There is no default that would be right on another GPU.",
    link=_VELOCITY, binding=True,
)  # fmt: skip
def _velocity(environment: Environment, _: Context) -> Iterator[Problem]:
    for placed, _scaling, _tokens in _by_tokens(environment):
        if placed.instance is not None and velocity_of(placed.endpoint, placed.name, placed.instance) is None:
            why = "groups of expert parallel ranks are not estimated" if placed.role.expert_parallel else "no speed is known"
            message = f"{why} of TP{placed.role.tensor_parallel} on {placed.instance.gpu or placed.instance.type} for this model"
            fix = "measure one pod, and write tokens_per_second"
            yield Problem(f"{placed.path}.autoscaling.tokens.tokens_per_second", message, fix)


@check(
    "SCL007", "The operator asks Amazon Managed Prometheus only",
    why="The resource's schema takes no other address: the API server refuses the endpoint as a whole.",
    link=_OPERATOR, binding=True,
)  # fmt: skip
def _address(environment: Environment, _: Context) -> Iterator[Problem]:
    for placed, _scaling, tokens in _by_tokens(environment):
        if placed.endpoint.backend == "operator" and not is_workspace(tokens.prometheus):
            limit = f"https://aps-workspaces.{environment.region}.amazonaws.com/workspaces/ws-…"
            message = "is not a workspace of Amazon Managed Prometheus, with nothing behind its id"
            path = f"{placed.path}.autoscaling.tokens.prometheus"
            yield Problem(path, message, "use a workspace, or the llm-d backend", tokens.prometheus, limit)


@check(
    "SCL008", "Raw fields do not take the last decoder away",
    why="Without a decoder nothing is answered, and the metrics of pods cannot wake what does not run. A raw field is merged in last, past "
        "the bounds of autoscaling.",
    link=_OPERATOR,
)  # fmt: skip
def _raw_zero(environment: Environment, _: Context) -> Iterator[Problem]:
    for index, endpoint in enumerate(environment.endpoints):
        disaggregated = _mapping(endpoint.raw.spec, "pdSpec")
        for scaler, name in _RAW_SCALERS.items():
            least = _mapping(_mapping(disaggregated, "autoScalingSpec"), scaler).get("minReplicaCount")
            if least == 0 and not isinstance(least, bool):
                decode = name == "decode"
                message = (
                    "without a decoder no request is answered" if decode else "without a prefiller long prompts wait until one has started"
                )
                path = f"endpoints[{index}].raw.spec.pdSpec.autoScalingSpec.{scaler}.minReplicaCount"
                yield Problem(path, message, "write 1, or remove the field", 0, "1 or more", level=None if decode else Level.WARNING)


@check(
    "SCL009", "The series that scale a role are collected, and often enough",
    why="Gauges are averaged over two minutes and rates taken over five: with rarer readings a window holds one sample or none, and the "
        "query has no answer. Without an answer no pod comes.",
    link=_KEDA,
)  # fmt: skip
def _collected(environment: Environment, _: Context) -> Iterator[Problem]:
    observe, most = environment.observe, SMOOTHING_SECONDS // 2
    for placed, _scaling, _tokens in _by_tokens(environment):
        if observe.metrics == "none":
            message = "scales by metrics that nobody here collects"
            fix = "set observe.metrics, or acknowledge that the cluster's own Prometheus reads the pods' metrics"
            yield Problem(f"{placed.path}.autoscaling.tokens.prometheus", message, fix, level=Level.WARNING)
        elif observe.scrape_interval_seconds > most:
            message = f"a window of {SMOOTHING_SECONDS} s holds fewer than two readings"
            yield Problem("observe.scrape_interval_seconds", message, "use 30", observe.scrape_interval_seconds, f"at most {most}")
            return


def _mapping(value: Any, key: str) -> dict[str, Any]:
    found = value.get(key) if isinstance(value, dict) else None
    return found if isinstance(found, dict) else {}
