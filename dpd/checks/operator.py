"""Rules about operator."""
