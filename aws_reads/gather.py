"""All questions of an environment, asked side by side; a question that fails is one that is open, and no other."""

from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from datetime import datetime
from typing import Any, Final

from botocore.exceptions import ClientError

from aws_reads import account, capacity, cluster, networks, quotas, storage
from aws_reads.asking import Ask, NoCallError, unanswered
from aws_reads.session import UNREACHABLE, Clients
from dpd.environment.environment import Environment
from dpd.preflight.facts import Answers, Fact, Facts, Unanswered
from dpd.preflight.questions import Kind, questions

ASKERS: Final[Mapping[Kind, tuple[str, Callable[[Ask], Fact | None]]]] = {
    "caller": ("sts", account.caller),
    "quota": ("servicequotas", quotas.quota),
    "nodes": ("sagemaker", quotas.nodes),
    "offering": ("ec2", capacity.offering),
    "zone": ("ec2", capacity.zone),
    "training_plan": ("sagemaker", capacity.training_plan),
    "subnet": ("ec2", networks.subnet),
    "security_group": ("ec2", networks.security_group),
    "bucket": ("s3", storage.bucket),
    "folder": ("s3", storage.folder),
    "key": ("kms", storage.key),
    "file_system": ("fsx", storage.file_system),
    "kubernetes": ("eks", cluster.kubernetes),
    "add_on": ("eks", cluster.add_on),
    "eks_cluster": ("eks", cluster.eks_cluster),
    "image": ("ecr", cluster.image),
    "secret": ("secretsmanager", storage.secret),
    "kubernetes_secret": ("", cluster.kubernetes_secret),
    "certificate": ("acm", cluster.certificate),
    "service_linked_role": ("iam", account.service_linked_role),
    "bootstrap": ("ssm", account.bootstrap),
    "stack": ("cloudformation", account.stack),
    "permissions": ("iam", account.permissions),
}
"""Who answers which kind of question, with the service's prefix in IAM."""
_AT_ONCE: Final = 8


def gather(
    environment: Environment, clients: Clients, taken_at: datetime, *, told: Callable[[str], None] = lambda _: None, at_once: int = _AT_ONCE
) -> Facts:
    """Ask everything. ``told`` hears of each kind of question as its answers come.

    Raises ``CredentialsError`` when the credentials end meanwhile.
    """
    asked = [Ask(clients, question, environment) for question in questions(environment)]
    with ThreadPoolExecutor(at_once) as pool:
        results = list(pool.map(_answer, asked))
    answers: dict[str, dict[str, Any]] = {}
    open_: list[Unanswered] = []
    for ask, result in zip(asked, results, strict=True):
        if isinstance(result, Unanswered):
            open_.append(result)
        else:
            answers.setdefault(ask.question.kind, {})[ask.subject] = result
    told(f"{len(asked)} questions, {len(asked) - len(open_)} answered")
    return Facts(
        version=1,
        environment=environment.name,
        account=environment.account,
        region=environment.region,
        taken_at=taken_at.replace(microsecond=0),
        answers=Answers(**answers),
        unanswered=tuple(open_),
    )


def _answer(ask: Ask) -> Fact | Unanswered | None:
    service, answer = ASKERS[ask.question.kind]
    try:
        return answer(ask)
    except (ClientError, NoCallError, *UNREACHABLE) as error:
        return unanswered(ask.question, service, error)
