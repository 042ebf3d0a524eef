"""Rules about the Kubernetes version."""

from collections.abc import Iterator
from datetime import date, timedelta
from typing import Final

from dpd.catalog import kubernetes
from dpd.catalog.kubernetes import KubernetesVersion
from dpd.checks.registry import Context, Problem, check
from dpd.environment.environment import Environment
from dpd.finding import Level

_PATH: Final = "cluster.kubernetes_version"
_CALENDAR: Final = "https://docs.aws.amazon.com/eks/latest/userguide/kubernetes-versions.html"
_NOTICE: Final = timedelta(days=90)
_SKEW: Final = 1
"""Minor versions by which kubectl and the API server may differ (Kubernetes version skew policy)."""


def _best(today: date) -> KubernetesVersion:
    """The version to recommend: of those that HyperPod lists and EKS still offers, the newest."""
    return max(
        (version for version in kubernetes.all_versions() if version.hyperpod and version.end_of_extended_support > today),
        key=lambda version: version.minor,
        default=kubernetes.all_versions()[-1],
    )


@check(
    "K8S001",
    "The Kubernetes version is known",
    why="EKS refuses a version that it does not offer, and cfn-lint does not notice: the stack fails after the network was made.",
    link=_CALENDAR,
)
def known(environment: Environment, context: Context) -> Iterator[Problem]:
    """Refuse versions that are not in the catalog."""
    version = environment.cluster.kubernetes_version
    if kubernetes.find(version) is None:
        yield Problem(
            path=_PATH,
            message="is not a Kubernetes version that this tool knows on EKS",
            value=version,
            limit=", ".join(known.version for known in kubernetes.all_versions()),
            fix=f"use {_best(context.today).version}",
        )


@check(
    "K8S002",
    "HyperPod lists the Kubernetes version",
    why="HyperPod names the versions that it runs on. Another one may be refused when the HyperPod cluster is made, or run without AMIs.",
    link="https://docs.aws.amazon.com/sagemaker/latest/dg/sagemaker-hyperpod-eks-prerequisites.html",
    level=Level.WARNING,
)
def listed(environment: Environment, context: Context) -> Iterator[Problem]:
    """Warn of versions that EKS has and HyperPod's documentation does not name."""
    found = kubernetes.find(environment.cluster.kubernetes_version)
    if found and not found.hyperpod:
        yield Problem(
            path=_PATH,
            message="EKS offers it, but HyperPod's documentation did not list it when the catalog was made",
            value=found.version,
            limit=", ".join(version.version for version in kubernetes.all_versions() if version.hyperpod),
            fix=f"use {_best(context.today).version}, or acknowledge this after AWS has confirmed the version",
        )


@check(
    "K8S003",
    "EKS supports the Kubernetes version for long enough",
    why="After standard support the control plane costs six times as much; after extended support no cluster can be made and EKS "
    "upgrades existing ones when it likes.",
    link=_CALENDAR,
    level=Level.WARNING,
    seen_in=("https://github.com/awslabs/awsome-distributed-ai/pull/1110",),
)
def supported(environment: Environment, context: Context) -> Iterator[Problem]:
    """Compare the end of support with today; only say what can be acted on louder than an information."""
    found = kubernetes.find(environment.cluster.kubernetes_version)
    if found is None or context.today + _NOTICE <= found.end_of_standard_support:
        return
    best = _best(context.today)
    standard, extended = found.end_of_standard_support, found.end_of_extended_support
    prices = [kubernetes.control_plane_usd_per_hour(extended=kind) for kind in (False, True)]
    cost = f"then ${prices[1]:.2f} instead of ${prices[0]:.2f} an hour until {extended:%Y-%m-%d}"
    newer = best.minor > found.minor
    if context.today >= extended:
        level, message = Level.ERROR, f"extended support ended on {extended:%Y-%m-%d}: EKS makes no cluster of this version"
    else:
        level = Level.WARNING if newer else Level.INFO
        tense = "ended" if context.today >= standard else "ends"
        message = f"standard support {tense} on {standard:%Y-%m-%d}, {cost}"
    yield Problem(
        path=_PATH,
        message=message,
        value=found.version,
        limit=f"{_NOTICE.days} days before the end of standard support",
        fix=f"use {best.version}" if newer else "nothing newer is documented for HyperPod yet; look again before the date",
        level=level,
    )


@check(
    "K8S004",
    "The kubectl that applies the manifests fits the cluster",
    why="kubectl is only supported within one minor version of the API server. Further away, a strict apply may refuse or drop fields.",
    link="https://kubernetes.io/releases/version-skew-policy/",
    level=Level.WARNING,
)
def kubectl(environment: Environment, _: Context) -> Iterator[Problem]:
    """Compare the version with that of the kubectl layer that the project installs."""
    found, shipped = kubernetes.find(environment.cluster.kubernetes_version), kubernetes.shipped_kubectl()
    if found and abs(found.minor - shipped.minor) > _SKEW:
        yield Problem(
            path=_PATH,
            message=f"the stacks apply manifests with kubectl {shipped.version}",
            value=found.version,
            limit=f"1.{shipped.minor - _SKEW} to 1.{shipped.minor + _SKEW}",
            fix=f"use one of these versions, or install {found.kubectl_layer_package} {found.kubectl_layer_version} and use its layer",
        )
