"""Rules about runtime."""
