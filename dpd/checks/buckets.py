"""Rules about buckets."""
