"""vLLM's own workloads with the llm-d router: every object is made here, and none by an operator."""
