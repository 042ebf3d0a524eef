"""Pieces that stacks are made of."""
