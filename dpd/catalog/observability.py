"""What the collection and display of metrics takes from outside: HyperPod's add-on, Amazon Managed Prometheus, buckets, CloudWatch."""

from collections.abc import Mapping
from typing import Any, Final

from dpd.catalog.tables import yaml_table

ADD_ON: Final = "amazon-sagemaker-hyperpod-observability"


def _facts(part: str) -> Mapping[str, Any]:
    found: Mapping[str, Any] = yaml_table("observability")[part]
    return found


def add_on() -> Mapping[str, Any]:
    """HyperPod's observability add-on: namespace, service account, the levels that we set, label of pods."""
    return _facts("add_on")


def managed_prometheus() -> Mapping[str, Any]:
    """Limits and names of Amazon Managed Service for Prometheus."""
    return _facts("managed_prometheus")


def buckets(histogram: str) -> tuple[float, ...]:
    """Upper ends, in seconds, of the buckets of one of vLLM's histograms of time. Raises ``KeyError`` for another one."""
    return tuple(float(end) for end in _facts("vllm_buckets")[histogram])


def token_buckets(most_tokens: int) -> tuple[int, ...]:
    """Upper ends of vLLM's histograms of token counts: 1, 2, 5 and their tens, up to the longest sequence."""
    return tuple(step * 10**power for power in range(len(str(most_tokens))) for step in (1, 2, 5) if step * 10**power <= most_tokens)


def post_seconds_per_descriptor() -> float:
    """What NIXL takes over EFA to post one descriptor, in seconds."""
    return float(_facts("nixl_post")["seconds_per_descriptor"])


def cloudwatch_metrics() -> dict[str, dict[str, tuple[str, ...]]]:
    """CloudWatch metrics by namespace, with the dimensions that each has."""
    return {
        namespace: {name: tuple(dimensions) for name, dimensions in metrics.items()}
        for namespace, metrics in _facts("cloudwatch").items()
        if namespace != "sources"
    }
