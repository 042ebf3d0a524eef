"""Service quotas by their names."""

from botocore.exceptions import ClientError

from aws_reads.asking import Ask, missing, pages
from aws_reads.session import Clients
from dpd.catalog import preflight
from dpd.preflight.facts import Nodes, Quota


def quota(ask: Ask) -> Quota | None:
    """The quota of a name: what the account was granted, else AWS's default. ``None``: the service has none of that name."""
    service = preflight.quota_names().service
    default = ask.clients.once("quotas", lambda: _defaults(ask.clients, service)).get(ask.subject)
    if default is None:
        return None
    try:
        granted = ask.clients("service-quotas").get_service_quota(ServiceCode=service, QuotaCode=default.code)["Quota"]
    except ClientError as error:
        missing(error, "NoSuchResourceException")
        return default
    return default.model_copy(update={"limit": float(granted["Value"])})


def _defaults(clients: Clients, service: str) -> dict[str, Quota]:
    listed = pages(clients("service-quotas"), "list_aws_default_service_quotas", "Quotas", ServiceCode=service)
    return {
        one["QuotaName"]: Quota(
            name=one["QuotaName"], code=one["QuotaCode"], limit=float(one["Value"]), adjustable=one.get("Adjustable", True)
        )
        for one in listed
    }


def nodes(ask: Ask) -> Nodes:
    """Nodes of all HyperPod clusters of the Region, by type."""
    sagemaker = ask.clients("sagemaker")
    own: dict[str, int] = {}
    others: dict[str, int] = {}
    for cluster in pages(sagemaker, "list_clusters", "ClusterSummaries"):
        count = own if cluster["ClusterName"] == ask.subject else others
        try:
            groups = sagemaker.describe_cluster(ClusterName=cluster["ClusterArn"]).get("InstanceGroups", ())
        except ClientError as error:
            missing(error, "ResourceNotFound", "ResourceNotFoundException")
            continue
        for group in groups:
            if (kind := group.get("InstanceType")) is not None:
                count[kind] = count.get(kind, 0) + max(group.get("CurrentCount", 0), group.get("TargetCount", 0))
    return Nodes(own=dict(sorted(own.items())), others=dict(sorted(others.items())))
