"""What the Region offers for the cluster: Kubernetes versions, add-ons, images, certificates; and an adopted cluster."""

import re
from datetime import UTC
from typing import Final

from botocore.exceptions import ClientError

from aws_reads.asking import Ask, NoCallError, missing, pages
from dpd.preflight.facts import AddOnVersions, Certificate, EksCluster, Image, Kubernetes, Named

_PRIVATE: Final = re.compile(
    r"(?P<account>[0-9]{12})\.dkr\.ecr\.(?P<region>[a-z0-9-]+)\.amazonaws\.com(?:\.cn)?/(?P<repository>[a-z0-9/._-]+)"
    r"(?::(?P<tag>[A-Za-z0-9_.-]+))?(?:@(?P<digest>sha256:[0-9a-f]{64}))?"
)


def kubernetes(ask: Ask) -> Kubernetes | None:
    """A Kubernetes version of EKS."""
    try:
        found = ask.clients("eks").describe_cluster_versions(clusterVersions=[ask.subject])["clusterVersions"]
    except ClientError as error:
        missing(error, "ResourceNotFoundException", "InvalidParameterException")
        return None
    return Kubernetes(status=(found[0].get("versionStatus") or found[0]["status"]).upper().replace("-", "_")) if found else None


def add_on(ask: Ask) -> AddOnVersions:
    """The versions of an add-on for a Kubernetes version."""
    name, _, version = ask.subject.partition(" ")
    try:
        found = pages(ask.clients("eks"), "describe_addon_versions", "addons", addonName=name, kubernetesVersion=version)
    except ClientError as error:
        missing(error, "ResourceNotFoundException", "InvalidParameterException")
        return AddOnVersions()
    return AddOnVersions(versions=tuple(one["addonVersion"] for add_on in found for one in add_on.get("addonVersions", ())))


def eks_cluster(ask: Ask) -> EksCluster | None:
    """An EKS cluster by its name."""
    try:
        found = ask.clients("eks").describe_cluster(name=ask.subject)["cluster"]
    except ClientError as error:
        missing(error, "ResourceNotFoundException")
        return None
    network = found.get("resourcesVpcConfig", {})
    return EksCluster(
        status=found["status"],
        version=found["version"],
        authentication_mode=found.get("accessConfig", {}).get("authenticationMode", ""),
        oidc_issuer=found.get("identity", {}).get("oidc", {}).get("issuer", ""),
        security_group_id=network.get("clusterSecurityGroupId", ""),
        vpc_id=network.get("vpcId", ""),
    )


def image(ask: Ask) -> Image | None:
    """An image of a private registry of ECR, by its digest when it has one, else by its tag."""
    match = _PRIVATE.fullmatch(ask.subject)
    if match is None:
        raise NoCallError(f"{ask.subject.partition('/')[0]} is not a private registry of ECR")
    wanted = {"imageDigest": match["digest"]} if match["digest"] else {"imageTag": match["tag"] or "latest"}
    try:
        (found,) = ask.clients("ecr", match["region"]).describe_images(
            registryId=match["account"], repositoryName=match["repository"], imageIds=[wanted]
        )["imageDetails"]
    except ClientError as error:
        missing(error, "ImageNotFoundException", "RepositoryNotFoundException")
        return None
    pushed = found.get("imagePushedAt")
    return Image(digest=found["imageDigest"], pushed=pushed.astimezone(UTC).replace(microsecond=0) if pushed else None)


def kubernetes_secret(ask: Ask) -> Named | None:
    """A Secret of Kubernetes: AWS does not know it."""
    namespace, _, name = ask.subject.partition("/")
    raise NoCallError(f"it lives in the cluster: kubectl get secret {name} --namespace {namespace}")


def certificate(ask: Ask) -> Certificate | None:
    """An ACM certificate by its ARN."""
    try:
        found = ask.clients("acm", ask.subject.split(":")[3]).describe_certificate(CertificateArn=ask.subject)["Certificate"]
    except ClientError as error:
        missing(error, "ResourceNotFoundException")
        return None
    expires = found.get("NotAfter")
    return Certificate(status=found["Status"], expires=expires.astimezone(UTC).replace(microsecond=0) if expires else None)
