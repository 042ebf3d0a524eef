"""Benchmarks: whole-process time and peak memory, each beside a yardstick measured in the same run."""
