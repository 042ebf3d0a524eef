"""Rules about placement."""
