"""Rules about parallelism."""
