"""Rules about capacity."""
