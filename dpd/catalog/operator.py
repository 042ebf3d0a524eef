"""The inference operator: ports, paths, words and versions."""

from dataclasses import dataclass
from functools import cache
from typing import Any

from dpd.catalog.tables import yaml_table


@dataclass(frozen=True, slots=True)
class Operator:
    """What the operator's documents state besides the schema of its resource. Versions are ``lmcache`` and ``vllm`` texts."""

    routing_strategies: dict[str, str]
    invocation_paths: dict[str, str]
    ports: dict[str, int]
    model_mount: dict[str, str]
    cloudwatch_periods_seconds: list[int]
    kv_aware: dict[str, Any]
    default_max_sequences: dict[str, int]
    threshold_default: int
    log_signatures: dict[str, str]
    """Regular expressions by what they find."""
    containers: dict[str, int]
    role_label: str
    role_settings: dict[str, str]
    """Regular expressions over the arguments and variables of a worker by role: how vLLM and LMCache are told their side."""
    router_container: str
    status: dict[str, Any]
    characters_per_token: int
    chunk_tokens: dict[str, Any]
    known_texts: list[dict[str, str]]
    remedies: dict[str, str]
    """What to do when a check of the health gate fails, by the check's id."""
    metrics: dict[str, str]
    raw_words: dict[str, Any]
    """A tree of the resource's fields; its leaves are the words of the environment file that say the same. An empty key is
    the word for all that stands beside it, where the file says nothing of it: a scaler with one raw field has defaults for the others."""
    newer_fields: dict[str, str]
    sources: list[str]


@cache
def operator() -> Operator:
    """The one entry of the table."""
    return Operator(**yaml_table("operator"))
