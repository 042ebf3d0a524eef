"""The pure core of HyperPod DPD: facts, configuration, arithmetic, backends and checks.

Nothing below this package imports ``aws_cdk`` or ``cdk8s``, reads a clock, or opens a socket.
"""

__version__ = "0.1.0"
