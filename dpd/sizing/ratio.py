"""How many prefillers for how many decoders: the ratio of their work."""

import math


def decode_workers(rate_per_second: float, output_tokens: float, itl_seconds: float, most_sequences: float) -> float:
    """Decoders that a rate keeps busy: sequences in flight (``rate x answer x inter-token latency``) over what one takes."""
    return rate_per_second * output_tokens * itl_seconds / most_sequences


def prefill_workers(rate_per_second: float, prompt_seconds: float) -> float:
    """Prefillers that a rate keeps busy."""
    return rate_per_second * prompt_seconds


def start_ratio(workers: int, prefill: float, decode: float) -> tuple[int, int]:
    """Split ``workers`` into prefillers and decoders in the ratio of their work, at least one of each. Raises ``ValueError`` below two."""
    if workers < 2:  # noqa: PLR2004
        raise ValueError("two roles need two workers")
    share = prefill / (prefill + decode) if prefill + decode else 0.5
    prefillers = min(workers - 1, max(1, math.floor(workers * share + 0.5)))
    return prefillers, workers - prefillers
