"""The world in which the gate's own tests run."""

from tests.lambdas.conftest import world

__all__ = ["world"]
