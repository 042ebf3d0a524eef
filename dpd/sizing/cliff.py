"""Where the p99 inter-token latency of colocated workers jumps from one decode step to one stretch of prompt."""

import math


def cliff_per_second(workers: int, itl_seconds: float, *, percentile: float = 99, prompt_tokens: float = 0, chunk_tokens: int = 0) -> float:
    """Requests a second from which more than ``100 - percentile`` percent of the gaps between tokens hold a prompt.

    ``workers x (1 - percentile / 100) / mean inter-token latency``, and less by the chunks of a prompt: each interrupts once,
    though for a shorter time. AWS's advice to disaggregate from 2 requests a second is this rule for two p5 nodes.
    """
    chunks = max(1, math.ceil(prompt_tokens / chunk_tokens)) if chunk_tokens else 1
    return workers * (1 - percentile / 100) / itl_seconds / chunks
