"""Proof that an endpoint works: the KV cache crossed EFA, prefill was used, and the answers are right.

``run.run`` is the whole gate; ``handler`` is its face in Lambda, and a command on a laptop may be another.
"""
