"""Rules about what the Region offers for the cluster: Kubernetes, add-ons, images, certificates."""

import contextlib
from collections.abc import Iterator
from typing import Final

from dpd.catalog.add_ons import version_key
from dpd.checks.registry import Context, Problem, check
from dpd.environment.environment import Environment
from dpd.finding import Level
from dpd.preflight.questions import add_on_subject, pinned_add_ons
from dpd.preflight.view import answers_about, each

_VERSIONS: Final = "https://docs.aws.amazon.com/eks/latest/userguide/kubernetes-versions.html"
_ADD_ONS: Final = "https://docs.aws.amazon.com/eks/latest/userguide/updating-an-add-on.html"
_ECR: Final = "https://docs.aws.amazon.com/AmazonECR/latest/userguide/what-is-ecr.html"


@check(
    "PRE040",
    "EKS offers the Kubernetes version",
    why="EKS makes no cluster of a version that it no longer, or not yet, has in the Region.",
    link=_VERSIONS,
)
def kubernetes(environment: Environment, context: Context) -> Iterator[Problem]:
    """Look at the version's support."""
    for question, answer in each(environment, answers_about(environment, context.preflight).kubernetes, "kubernetes"):
        if answer is None or "UNSUPPORTED" in answer.status:
            yield Problem(question.path, f"EKS in {environment.region} does not offer it", "write another version", question.subject)
        elif "EXTENDED" in answer.status:
            said = "EKS gives it extended support alone, which costs more"
            yield Problem(question.path, said, "write a newer version that HyperPod lists", question.subject, level=Level.WARNING)


@check(
    "PRE041",
    "The Region offers every add-on in its version",
    why="EKS offers add-on versions by Region and Kubernetes version, and withdraws builds. A version that is not offered fails the "
    "add-ons stack, by when the nodes are billed.",
    link=_ADD_ONS,
)
def add_ons(environment: Environment, context: Context) -> Iterator[Problem]:
    """Look for each pinned version among those offered."""
    answers, version = answers_about(environment, context.preflight).add_on, environment.cluster.kubernetes_version
    for name, pinned in pinned_add_ons(environment):
        subject, path = add_on_subject(name, version), f"cluster.add_ons.{name}.version"
        if subject not in answers:
            continue
        offered = answer.versions if (answer := answers[subject]) else ()
        if not offered:
            said = f"{environment.region} does not offer it for Kubernetes {version}"
            yield Problem(path, said, "take another Region or Kubernetes version, or install it yourself with install: false", name)
        elif pinned and pinned not in offered:
            near = _nearest(pinned, offered)
            said = f"{name} {pinned} is not offered for Kubernetes {version}"
            yield Problem(path, said, f"write {near}", pinned, ", ".join(offered[:5]))


def _nearest(pinned: str, offered: tuple[str, ...]) -> str:
    """The oldest version that is not older, else the newest."""
    keys = {}
    for one in offered:
        with contextlib.suppress(ValueError):
            keys[version_key(one)] = one
    with contextlib.suppress(ValueError):
        if newer := [key for key in keys if key >= version_key(pinned)]:
            return keys[min(newer)]
    return keys[max(keys)] if keys else offered[0]


@check(
    "PRE042",
    "The adopted cluster is what the file says",
    why="Roles trust the issuer that the file names, nodes join the security group that it names, and HyperPod refuses CONFIG_MAP.",
    link="https://docs.aws.amazon.com/sagemaker/latest/dg/sagemaker-hyperpod-eks-prerequisites.html",
)
def adopted(environment: Environment, context: Context) -> Iterator[Problem]:
    """Compare status, version, mode, issuer, security group and VPC with the file."""
    if (written := environment.cluster.existing) is None:
        return
    place, network = "cluster.existing", environment.network.existing
    for question, answer in each(environment, answers_about(environment, context.preflight).eks_cluster, "eks_cluster"):
        if answer is None:
            yield Problem(question.path, f"there is no such cluster in {environment.region}", "correct the name", question.subject)
            continue
        for path, said, real in (
            (question.path, "ACTIVE", answer.status),
            ("cluster.kubernetes_version", environment.cluster.kubernetes_version, answer.version),
            (f"{place}.authentication_mode", written.authentication_mode, answer.authentication_mode),
            (f"{place}.oidc_issuer", written.oidc_issuer, answer.oidc_issuer),
            (f"{place}.security_group_id", written.security_group_id, answer.security_group_id),
            ("network.existing.vpc_id", network.vpc_id if network else answer.vpc_id, answer.vpc_id),
        ):
            if said != real:
                yield Problem(path, f"the cluster has {real}", "write what is there", said, real)


@check(
    "PRE043",
    "Images are there",
    why="An image that cannot be pulled is found out by pods on nodes that are billed.",
    link=_ECR,
)
def images(environment: Environment, context: Context) -> Iterator[Problem]:
    """Look for each image of a private registry."""
    for question, answer in each(environment, answers_about(environment, context.preflight).image, "image"):
        if answer is None:
            yield Problem(question.path, "there is no such image", "push it, or correct repository, tag and digest", question.subject)


@check(
    "PRE044",
    "Certificates are issued",
    why="A load balancer takes no certificate that is pending or expired; the endpoint then has no address.",
    link="https://docs.aws.amazon.com/acm/latest/userguide/acm-certificate-states.html",
)
def certificates(environment: Environment, context: Context) -> Iterator[Problem]:
    """Look at state and end of each certificate."""
    for question, answer in each(environment, answers_about(environment, context.preflight).certificate, "certificate"):
        if answer is None:
            yield Problem(question.path, f"there is no such certificate in {environment.region}", "correct the ARN", question.subject)
        elif answer.status != "ISSUED" or (answer.expires and answer.expires.date() <= context.today):
            said = f"the certificate is {answer.status}" if answer.status != "ISSUED" else f"it expired {answer.expires:%Y-%m-%d}"
            yield Problem(question.path, said, "validate or renew it", question.subject, "ISSUED")
