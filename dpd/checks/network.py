"""Rules about network."""
