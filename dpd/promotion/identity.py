"""What a synthesis says of an environment so that a later promotion can compare it with another one."""

from collections.abc import Iterator
from typing import Any, Final

from dpd.backends.site import Site
from dpd.environment.endpoint import Endpoint
from dpd.environment.environment import Environment
from dpd.environment.names import REPORT_PREFIX, LlmdNames, Names, weights_volume
from dpd.staging import record_key

PREFIX: Final = "{prefix}"


def identity(environment: Environment) -> dict[str, Any]:
    """The environment's own values by what they stand for, its models, its declared differences, and where its reports are."""
    names, site = Names.of(environment), Site.of(environment)
    return {
        "own": [[text, mark] for text, mark in sorted(_own(environment, names, site), key=lambda pair: (-len(pair[0]), pair))],
        "models": {f"{endpoint.namespace}/{endpoint.name}": _model(endpoint, site) for endpoint in environment.endpoints},
        "differences": [difference.model_dump() for difference in environment.promotion.differences],
        "proof_hours": environment.promotion.proof_hours,
        "reports": {"bucket": names.log_bucket, "prefix": REPORT_PREFIX, "environment": names.prefix},
        "alarms": f"{names.prefix}-",
        "eks_cluster": environment.cluster.existing.name if environment.cluster.existing else names.eks_cluster,
    }


def _own(environment: Environment, names: Names, site: Site) -> Iterator[tuple[str, str]]:
    """Every value that is this environment's and no other's, with the mark that a comparison reads in its place."""
    yield names.prefix, PREFIX
    yield environment.account, "{account}"
    yield environment.region, "{region}"
    yield site.model_bucket, "{model bucket}"
    if zone := gpu_zone(environment):
        yield zone, "{AZ}"
    if site.lustre:
        yield from zip(
            (site.lustre.file_system_id, site.lustre.dns_name, site.lustre.mount_name),
            ("{file system}", "{Lustre}", "{mount}"),
            strict=True,
        )
    for index, network in enumerate(site.control_plane_cidrs):
        yield network, f"{{network {index}}}"
    for name, repository in environment.cluster.router_repositories.items():
        yield repository, f"{{mirror of {name}}}"
    for endpoint in environment.endpoints:
        yield from _of_endpoint(endpoint, site)


def _of_endpoint(endpoint: Endpoint, site: Site) -> Iterator[tuple[str, str]]:
    exposure, certificate = endpoint.exposure, endpoint.exposure.certificate
    place = f"{endpoint.namespace}/{endpoint.name}"
    if exposure.sagemaker_endpoint:
        yield exposure.sagemaker_endpoint, f"{{SageMaker endpoint of {place}}}"
    if certificate:
        yield certificate.acm_arn, f"{{certificate of {place}}}"
        yield certificate.domain_name, f"{{domain of {place}}}"
        if certificate.hosted_zone_id:
            yield certificate.hosted_zone_id, f"{{hosted zone of {place}}}"
    if endpoint.backend == "llm-d" and endpoint.model.source.s3:
        # The claim's name holds a digest of the bucket, which is another one in every account.
        claim = LlmdNames.of(endpoint).weights(site.model_bucket, endpoint.model.source.s3.prefix)
        yield claim, f"{{weights of {place}}}"
        yield weights_volume(site.prefix, endpoint.namespace, claim), f"{{volume of {place}}}"


def _model(endpoint: Endpoint, site: Site) -> dict[str, Any]:
    """Which model, which revision of it where somebody knows, and where the record of a copy of its weights would lie."""
    source = endpoint.model.source
    return {
        "name": endpoint.model.shape.name,
        "source": source.kind,
        "revision": source.hub.revision if source.hub else endpoint.model.revision,
        "record": {"bucket": site.model_bucket, "key": record_key(source.s3.prefix)} if source.s3 else None,
    }


def gpu_zone(environment: Environment) -> str:
    """The AZ id of the GPU subnet."""
    network = environment.network
    subnet = network.existing.gpu_subnet if network.existing else network.gpu_subnet
    return subnet.availability_zone_id if subnet else ""
