"""Rules about addresses."""
