"""Where the p99 inter-token latency of colocated workers jumps from one decode step to one stretch of prompt."""


def cliff_per_second(workers: int, itl_seconds: float, *, percentile: float = 99, chunks: float = 1) -> float:
    """Prompts a second from which more than ``100 - percentile`` percent of the gaps between tokens hold a stretch of prompt.

    ``workers x (1 - percentile / 100) / mean inter-token latency / chunks of a prompt``: each chunk interrupts once, though for
    a shorter time. AWS's advice to disaggregate from 2 requests a second is this rule for two p5 nodes.
    """
    return workers * (1 - percentile / 100) / itl_seconds / chunks
