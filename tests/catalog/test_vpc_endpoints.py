"""The list of interface endpoints."""

from dpd.catalog.sources import source
from dpd.catalog.vpc_endpoints import interface_endpoints


def test_every_endpoint_has_a_reason_and_a_declared_source() -> None:
    for endpoint in interface_endpoints():
        assert endpoint.why
        assert source(endpoint.source).url.startswith("https://")


def test_no_endpoint_twice_and_none_for_s3() -> None:
    services = [endpoint.service for endpoint in interface_endpoints()]
    assert len(services) == len(set(services))
    assert "s3" not in services, "S3 has a gateway endpoint"


def test_what_every_node_calls_is_there() -> None:
    needed = {"ec2", "ecr.api", "ecr.dkr", "sts", "eks", "eks-auth", "logs", "monitoring", "sagemaker.api", "elasticloadbalancing"}
    assert needed <= {endpoint.service for endpoint in interface_endpoints()}


def test_derived_needs_are_marked() -> None:
    assert {endpoint.service for endpoint in interface_endpoints() if endpoint.derived} == {"acm", "fsx", "sns", "lambda"}
