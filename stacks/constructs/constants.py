"""Constants of CDK, asked once: every question to CDK crosses to Node and back."""

from functools import cache

from aws_cdk import Duration
from aws_cdk import aws_lambda as lambda_


@cache
def python() -> lambda_.Runtime:
    """The Python of all functions."""
    return lambda_.Runtime.PYTHON_3_14


@cache
def arm_64() -> lambda_.Architecture:
    """The processor of all functions."""
    return lambda_.Architecture.ARM_64


@cache
def seconds(count: int) -> Duration:
    """A time in seconds."""
    return Duration.seconds(count)
