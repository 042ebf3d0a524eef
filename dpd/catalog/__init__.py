"""Facts from outside (AWS, Kubernetes, vLLM, model publishers), each with its source and the day it was read.

The facts are data files in ``data/``; the modules here give typed access and hold no rules.
"""
