"""Answers of an account in which everything is right, and what the rules say when one of them is not."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

from dpd.catalog import preflight
from dpd.checks.registry import Context, run
from dpd.environment.cluster import TrainingPlan as PlanOfGroup
from dpd.environment.environment import Environment
from dpd.finding import Finding, Level
from dpd.preflight import facts as answer
from dpd.preflight.facts import Answers, Facts, Unanswered
from dpd.preflight.questions import Question, pinned_add_ons, questions, weight_prefixes
from dpd.preflight.store import Reading
from tests.support import TODAY, environment

TAKEN = datetime(2026, 11, 29, 9, tzinfo=UTC)
VPC = "vpc-0123456789abcdef0"
PLAN = "arn:aws:sagemaker:us-east-2:111122223333:training-plan/llama-plan"
Changed = Mapping[tuple[str, str], Any]
"""An answer by kind and subject; ``...`` takes it away."""


def _quota(question: Question, _: Environment) -> Any:
    return answer.Quota(name=question.subject, code="L-0000AAAA", limit=2000.0)


def _offering(_question: Question, asked: Environment) -> Any:
    return answer.Offering(zones=tuple(sorted({"use2-az1", "use2-az3", asked.region})))


def _plan(_: Question, asked: Environment) -> Any:
    (group,) = [one for one in asked.cluster.groups.values() if isinstance(one.capacity, PlanOfGroup)]
    capacity = answer.Reserved(instance_type=group.instance_type, count=group.most_nodes, zone_id="use2-az1")
    return answer.TrainingPlan(
        status="Active", end=datetime(2027, 1, 1, tzinfo=UTC), total=group.most_nodes, targets=("hyperpod-cluster",), reserved=(capacity,)
    )


def _subnet(question: Question, asked: Environment) -> Any:
    assert asked.network.existing
    listed = (asked.network.existing.gpu_subnet, *asked.network.existing.control_plane_subnets)
    (subnet,) = [one for one in listed if one.id == question.subject]
    return answer.Subnet(vpc_id=VPC, zone_id=subnet.availability_zone_id, cidr=subnet.cidr, free=60_000)


def _security_group(question: Question, asked: Environment) -> Any:
    assert asked.network.existing
    (group,) = [one for one in asked.network.existing.security_groups if one.id == question.subject]
    return answer.SecurityGroup(vpc_id=VPC, rules=tuple((rule.direction, rule.protocol, rule.peer) for rule in group.rules))


def _bucket(question: Question, asked: Environment) -> Any:
    adopted = asked.storage.adopted_buckets.get(question.path)
    return answer.Bucket(region=adopted.region if adopted else asked.region, key_arn=(adopted and adopted.kms_key_arn) or "")


def _folder(_: Question, asked: Environment) -> Any:
    path, _prefix = next(iter(weight_prefixes(asked)))
    size = int(asked.endpoints[int(path[len("endpoints[")])].model.shape.weight_bytes)
    return answer.Folder(objects=40, bytes=size + 10_000_000, weights_bytes=size, weight_files=30, config=True)


def _file_system(_: Question, asked: Environment) -> Any:
    lustre = asked.storage.lustre and asked.storage.lustre.existing
    assert lustre
    return answer.FileSystem(
        lifecycle="AVAILABLE", dns_name=lustre.dns_name, mount_name=lustre.mount_name, capacity_gib=lustre.capacity_gib
    )


def _add_on(question: Question, asked: Environment) -> Any:
    pinned = dict(pinned_add_ons(asked))[question.subject.partition(" ")[0]]
    return answer.AddOnVersions(versions=(pinned or "v1.0.0-eksbuild.1",))


def _eks_cluster(_: Question, asked: Environment) -> Any:
    cluster = asked.cluster.existing
    assert cluster
    return answer.EksCluster(
        status="ACTIVE",
        version=asked.cluster.kubernetes_version,
        authentication_mode=cluster.authentication_mode,
        oidc_issuer=cluster.oidc_issuer,
        security_group_id=cluster.security_group_id,
        vpc_id=VPC,
    )


GOOD: Mapping[str, Callable[[Question, Environment], Any]] = {
    "caller": lambda _, asked: answer.Caller(account=asked.account, arn=f"arn:aws:iam::{asked.account}:user/someone"),
    "quota": _quota,
    "nodes": lambda *_: answer.Nodes(),
    "offering": _offering,
    "zone": lambda *_: answer.Zone(name="us-east-2a", state="available"),
    "training_plan": _plan,
    "subnet": _subnet,
    "security_group": _security_group,
    "bucket": _bucket,
    "folder": _folder,
    "key": lambda *_: answer.Key(state="Enabled", usage="ENCRYPT_DECRYPT", spec="SYMMETRIC_DEFAULT"),
    "file_system": _file_system,
    "kubernetes": lambda *_: answer.Kubernetes(status="STANDARD_SUPPORT"),
    "add_on": _add_on,
    "eks_cluster": _eks_cluster,
    "image": lambda *_: answer.Image(digest=f"sha256:{'0' * 64}"),
    "secret": lambda question, _: answer.Named(name=question.subject),
    "kubernetes_secret": lambda question, _: answer.Named(name=question.subject),
    "certificate": lambda *_: answer.Certificate(status="ISSUED", expires=datetime(2027, 6, 1, tzinfo=UTC)),
    "service_linked_role": lambda question, _: answer.Named(name=question.subject),
    "bootstrap": lambda *_: answer.Bootstrap(version=preflight.bootstrap().least),
    "stack": lambda *_: answer.Stack(status="CREATE_COMPLETE"),
    "permissions": lambda *_: answer.Decisions(principal="arn:aws:iam::111122223333:role/deployer", allowed=("sts:AssumeRole",)),
}


def good(asked: Environment, changed: Changed | None = None, *, open_: tuple[Unanswered, ...] = (), **given: Any) -> Facts:
    """The answers to every question of an environment, all of them right but for what is changed."""
    answers: dict[str, dict[str, Any]] = {}
    for question in questions(asked):
        answers.setdefault(question.kind, {})[question.subject] = GOOD[question.kind](question, asked)
    for (kind, subject), value in (changed or {}).items():
        assert subject in answers[kind], f"nothing asks for {kind} {subject!r}: {sorted(answers[kind])}"
        if value is ...:
            del answers[kind][subject]
        else:
            answers[kind][subject] = value
    place = {"environment": asked.name, "account": asked.account, "region": asked.region, "taken_at": TAKEN, **given}
    return Facts(version=1, answers=Answers(**answers), unanswered=open_, **place)


def said(changes: Mapping[str, Any], changed: Changed | None = None, **given: Any) -> list[Finding]:
    """What the rules about answers say."""
    asked = environment(dict(changes))
    context = Context(today=TODAY, preflight=Reading("preflight/dev.json", good(asked, changed, **given)))
    return [one for one in run(asked, context) if one.id.startswith("PRE")]


@dataclass(frozen=True)
class Told:
    """A row: the smallest wrong answer, what is said of it, and the nearest right answer."""

    id: str
    wrong: Changed
    path: str
    says: str
    right: Changed = field(default_factory=dict)
    changes: Mapping[str, Any] = field(default_factory=dict)
    level: Level = Level.ERROR

    def __str__(self) -> str:
        return f"{self.id} {self.says}"

    def verify(self) -> None:
        """Both rows, and that nothing else is said of the wrong one."""
        found = said(self.changes, self.wrong)
        assert {one.id for one in found} == {self.id}, found
        (one,) = [one for one in found if one.path == self.path]
        assert self.says in " ".join((one.message, one.value, one.limit, one.fix)), one
        assert one.level is self.level
        assert one.fix
        assert not said(self.changes, self.right)
