"""The real parsers of vLLM and LMCache, run over everything that the examples say to them."""
