"""Rules about sources."""
