"""Rules about EKS add-ons: which there are, in which versions."""

import difflib
from collections.abc import Iterator
from typing import Final

from dpd.backends.controllers import needed
from dpd.catalog import add_ons, kubernetes
from dpd.catalog.add_ons import version_key
from dpd.catalog.controllers import all_controllers
from dpd.checks.network import closed
from dpd.checks.registry import Context, Problem, check
from dpd.environment.environment import Environment
from dpd.finding import Level

_ADD_ONS: Final = "https://docs.aws.amazon.com/eks/latest/userguide/workloads-add-ons-available-eks.html"


@check(
    "CLU007",
    "Changed add-ons exist",
    why="A change of a misspelt add-on changes nothing: the version that was to be avoided is installed.",
    link=_ADD_ONS,
)
def known_add_ons(environment: Environment, _: Context) -> Iterator[Problem]:
    """Refuse names of add-ons and controllers that the version table does not have."""
    known = [*(add_on.name for add_on in add_ons.all_add_ons()), *all_controllers()]
    for name in environment.cluster.add_ons:
        if name not in known:
            near = difflib.get_close_matches(name[:80], known, n=1)
            yield Problem(
                path=f"cluster.add_ons.{name[:80]}",
                message="is not an add-on that this tool installs",
                value=name,
                limit=", ".join(known),
                fix=f"did you mean {near[0]}?" if near else "remove it, and install it outside of this tool",
            )


@check(
    "CLU008",
    "Add-on versions exist and are new enough",
    why="EKS refuses a version of another form when the add-on is made. Below the floor an add-on installs and then fails in ways that "
    "do not "
    "name the version.",
    link="https://docs.aws.amazon.com/sagemaker/latest/dg/sagemaker-hyperpod-model-deployment-setup.html",
    binding=True,
)
def add_on_versions(environment: Environment, _: Context) -> Iterator[Problem]:
    """Check form, floor and Kubernetes version of every changed version."""
    for name, change in environment.cluster.add_ons.items():
        known, path = add_ons.find(name), f"cluster.add_ons.{name}.version"
        if change.version is not None and (controller := all_controllers().get(name)):
            fix = "leave version out, or install your own and say install: false"
            yield Problem(path, "is one of a set that runs together, and cannot be changed alone", fix, change.version, controller.version)
        if known is None or change.version is None:
            continue
        pinned = known.version_for(environment.cluster.kubernetes_version)
        newer = f"write {pinned}" if pinned else f"look with: aws eks describe-addon-versions --addon-name {name}"
        try:
            key = version_key(change.version)
        except ValueError:
            yield Problem(path, "is not an add-on version", newer, change.version, "v<major>.<minor>.<patch>-eksbuild.<build>")
            continue
        if known.floor and key < version_key(known.floor):
            yield Problem(path, f"is too old: {known.floor_reason}", newer, change.version, f"{known.floor} or newer")
        elif name == "kube-proxy" and key[1] > kubernetes.minor(environment.cluster.kubernetes_version):
            yield Problem(
                path,
                f"kube-proxy may not be newer than Kubernetes {environment.cluster.kubernetes_version}",
                newer,
                change.version,
                f"v{environment.cluster.kubernetes_version}.x or older",
            )


@check(
    "CLU009",
    "Every add-on is installed or already there",
    why="The operator does not start without each of its dependencies; install: false says that the cluster has it, which a new "
    "cluster has not.",
    link="https://docs.aws.amazon.com/sagemaker/latest/dg/sagemaker-hyperpod-model-deployment-setup.html",
)
def left_out(environment: Environment, _: Context) -> Iterator[Problem]:
    """Refuse to leave an add-on out of a cluster that this tool makes."""
    if environment.cluster.existing:
        return
    for name, change in environment.cluster.add_ons.items():
        if add_ons.find(name) and not change.install:
            yield Problem(
                path=f"cluster.add_ons.{name}.install",
                message="the cluster is made by this tool, so nobody else installs it",
                value=False,
                fix="leave install out",
            )


@check(
    "CLU010",
    "Every add-on has a pinned version",
    why="Without a version EKS takes its default of the day, so dev and prod get different ones from the same file.",
    link=_ADD_ONS,
    level=Level.WARNING,
)
def pinned(environment: Environment, _: Context) -> Iterator[Problem]:
    """Warn of add-ons for which neither the table nor the file has a version."""
    cluster = environment.cluster
    if kubernetes.find(cluster.kubernetes_version) is None:
        return
    for add_on in add_ons.all_add_ons():
        change = cluster.add_ons.get(add_on.name)
        if cluster.existing and not add_on.needs_nodes:
            continue
        if add_on.version_for(cluster.kubernetes_version) is None and (change is None or (change.install and change.version is None)):
            yield Problem(
                path=f"cluster.add_ons.{add_on.name}.version",
                message=f"the catalog has no version for Kubernetes {cluster.kubernetes_version}",
                fix=f"pin one of: aws eks describe-addon-versions --addon-name {add_on.name} "
                f"--kubernetes-version {cluster.kubernetes_version}",
            )


@check(
    "CLU023",
    "Controllers that endpoints ask for can be fetched",
    why="Their charts, definitions and images are on the internet, which a closed network does not reach. The add-ons stack fails there, "
    "after the nodes have started.",
    link="https://docs.aws.amazon.com/eks/latest/userguide/private-clusters.html",
)
def fetched(environment: Environment, _: Context) -> Iterator[Problem]:
    """Ask for copies in a network without a way out."""
    wanted = needed(environment.endpoints, environment.cluster.add_ons)
    if wanted and closed(environment):
        yield Problem(
            "network.egress.nat_gateways",
            f"the endpoints need {', '.join(wanted)}, and a network without NAT cannot fetch them",
            "install them from copies of your own and say install: false for each under cluster.add_ons, or make a NAT gateway",
            value=0,
            limit="1 or more",
        )
