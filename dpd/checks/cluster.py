"""Rules about cluster."""
