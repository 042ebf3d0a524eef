"""Token velocity: what one pod of a role does in a second. The policy, its checks and the replay start from it.

The word and the idea, to size each role by its own rate of tokens, are TokenScale's (https://arxiv.org/abs/2512.03416).
"""

from dataclasses import dataclass
from typing import Final

from dpd.catalog.instances import Instance
from dpd.catalog.operator import operator
from dpd.catalog.serving import batch_defaults
from dpd.environment.endpoint import Endpoint, Role
from dpd.sizing.memory import gpu_budget
from dpd.sizing.roofline import Engine

_HALVINGS: Final = 20


@dataclass(frozen=True, slots=True)
class Pod:
    """One pod of a role. ``prefill_speed`` and ``decode_speed`` are a calibration's: how much faster than estimated it is.

    ``kv_tokens`` is what its KV cache holds, ``most_sequences`` vLLM's limit, ``chunk_tokens`` the longest stretch of a prompt in a step.
    """

    engine: Engine
    chunk_tokens: int
    most_sequences: int
    kv_tokens: int
    prefill_speed: float = 1.0
    decode_speed: float = 1.0

    @classmethod
    def of(
        cls, endpoint: Endpoint, role_name: str, instance: Instance, *, prefill_speed: float = 1.0, decode_speed: float = 1.0
    ) -> "Pod | None":
        """A pod of a role; ``None`` where no speed is known: another GPU, expert parallelism, weights that do not fit."""
        role: Role = dict(endpoint.roles)[role_name]
        engine = Engine.of(endpoint.model.shape, instance.gpu, role.tensor_parallel, endpoint.kv.dtype)
        budget = gpu_budget(endpoint, role_name, role, instance)
        if engine is None or role.expert_parallel or budget.kv_tokens < 1:
            return None
        defaults = batch_defaults(instance.gpu, instance.gpu_memory_gib)
        return cls(engine, defaults.chunk_tokens, most_sequences(role_name, role), budget.kv_tokens, prefill_speed, decode_speed)

    def read_seconds(self, tokens: float, cached_tokens: float = 0) -> float:
        """One prompt, nothing else in its way."""
        length, found = max(1, round(tokens)), min(round(cached_tokens), max(0, round(tokens) - 1))
        return self.engine.prompt_seconds(length, self.chunk_tokens, found) / self.prefill_speed

    def read_velocity(self, tokens: float, cached_tokens: float = 0) -> float:
        """Prompt tokens a second, of prompts of this length; those found in a cache are not counted."""
        return max(1.0, tokens - cached_tokens) / self.read_seconds(tokens, cached_tokens)

    def gap_seconds(self, sequences: float, context_tokens: float) -> float:
        """Time between two tokens of each of so many sequences."""
        return self.engine.decode_seconds(max(1.0, sequences), context_tokens) / self.decode_speed

    def places(self, context_tokens: float) -> float:
        """Sequences that fit its KV cache and vLLM's limit."""
        return max(1.0, min(float(self.most_sequences), self.kv_tokens / max(1.0, context_tokens)))

    def sequences_within(self, context_tokens: float, itl_seconds: float) -> float:
        """The most sequences that it writes at once while the gap between two tokens stays within ``itl_seconds``; at least 1."""
        most = self.places(context_tokens)
        if self.gap_seconds(most, context_tokens) <= itl_seconds:
            return most
        low, high = 1.0, most
        for _ in range(_HALVINGS):
            middle = (low + high) / 2
            low, high = (middle, high) if self.gap_seconds(middle, context_tokens) <= itl_seconds else (low, middle)
        return low

    def write_velocity(self, context_tokens: float, itl_seconds: float) -> float:
        """Answer tokens a second within the inter-token objective."""
        sequences = self.sequences_within(context_tokens, itl_seconds)
        return sequences / self.gap_seconds(sequences, context_tokens)


def most_sequences(role_name: str, role: Role) -> int:
    """Sequences that one engine of a role takes at once."""
    return role.max_concurrent_sequences or operator().default_max_sequences[role_name]


def local_velocity(endpoint: Endpoint, instance: Instance) -> float | None:
    """Prompt tokens a second that a decoder reads when it reads alone, of prompts up to the threshold; ``None`` when nobody knows."""
    pod = Pod.of(endpoint, "decode", instance)
    return pod.read_velocity(min(max(1, endpoint.routing.threshold_tokens), endpoint.model.max_model_len)) if pod else None


def of_role(endpoint: Endpoint, role_name: str, instance: Instance) -> float | None:
    """The velocity of a role: what the file says, else an estimate; ``None`` where neither is known.

    The estimate of a prefiller is of prompts as long as a step takes, as llm-d's calibration measures it; that of a decoder is of
    sequences of half of ``max_model_len`` (derived: nobody knows the traffic here).
    """
    role = dict(endpoint.roles)[role_name]
    tokens = role.autoscaling.tokens if role.autoscaling else None
    if tokens and tokens.tokens_per_second:
        return tokens.tokens_per_second
    pod = Pod.of(endpoint, role_name, instance)
    if pod is None:
        return None
    if role_name == "prefill":
        return pod.read_velocity(min(pod.chunk_tokens, endpoint.model.max_model_len))
    return pod.write_velocity(endpoint.model.max_model_len / 2, endpoint.objectives.itl_p99_ms / 1e3)
