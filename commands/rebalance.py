"""``dpd rebalance``: shift nodes between the instance groups of prefill and decode, without new capacity."""

import sys
import uuid
from collections.abc import Iterator
from datetime import date
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import click

from commands.clock import with_today
from commands.one import UnableError, clients, one_file, with_credentials, with_environment

if TYPE_CHECKING:
    from aws_reads.fleet import Fleet, Group
    from aws_reads.session import Clients
    from dpd.environment.environment import Environment
    from dpd.finding import Finding

_MOST_NODES: Final = 50
"""Nodes of one call of MoveClusterNodes."""
_DENIED: Final = frozenset(
    {"AccessDenied", "AccessDeniedException", "ExpiredToken", "ExpiredTokenException", "UnrecognizedClientException"}
)
_WIPED: Final = (
    "The nodes keep their instances, addresses and capacity. Their root and EBS volumes are made anew, their pods are evicted, and they "
    "start again with the lifecycle scripts of the target group."
)


@click.command(
    "rebalance",
    short_help="Shift nodes between the prefill and the decode group.",
    epilog="""\b
Examples:
  dpd rebalance -e prod --from decode --to prefill            # what would happen
  dpd rebalance -e prod --from decode --to prefill --nodes 2 --apply
  dpd rebalance -e prod --from decode --to prefill --node i-0123456789abcdef0 --apply
  dpd rebalance -e prod --from decode --to prefill --offline  # the file's arithmetic alone

Exit codes: 0 it could be done, or was; 1 refused, or a node was not moved; 3 AWS could not be asked.""",
)
@with_environment
@click.option("--from", "source", required=True, help="Instance group that gives.")
@click.option("--to", "target", required=True, help="Instance group that gets.")
@click.option("--nodes", type=click.IntRange(1, _MOST_NODES), default=None, help="How many; HyperPod picks them. Default: 1.")
@click.option("--node", "ids", multiple=True, metavar="INSTANCE-ID", help="This node; may be given several times.")
@click.option("--apply", "apply_", is_flag=True, help="Do it, and write the new counts into the file. Without it nothing is changed.")
@click.option("--offline", is_flag=True, help="Do not ask AWS; not with --apply.")
@with_credentials
@with_today
def command(
    *, file: Path | None, name: str | None, source: str, target: str, nodes: int | None, ids: tuple[str, ...], apply_: bool, offline: bool,
    profile: str | None, role_arn: str | None, today: date,
) -> int:  # fmt: skip
    """Move nodes from one instance group to another (SageMaker MoveClusterNodes), when the ratio of the roles is no longer the traffic's.

    Says what would happen. Refuses what the file's checks refuse of the new counts, a cluster that is busy or differs from the file, and
    nodes that do not run.
    """
    from commands import report  # noqa: PLC0415

    if ids and nodes is not None:
        raise click.UsageError("--nodes counts nodes and --node names them: give one of both.")
    if offline and apply_:
        raise click.UsageError("--apply needs AWS, which --offline does not ask.")
    count, path = len(dict.fromkeys(ids)) if ids else nodes or 1, one_file(file, name)
    with path.open(encoding="utf-8", newline="") as stream:
        before = stream.read()
    environment, findings = _environment(before, path)
    if environment is None:
        report.write(findings, files=1, stream=sys.stderr)
        return 1
    if refused := list(_impossible(environment, source, target, count)):
        return _refuse(refused)
    after, findings = _edited(environment, before, path, source, target, count, today=today)
    if findings:
        report.write(findings, files=1, stream=sys.stderr)
        return _refuse([f"without what {source} gives the file would have these errors; change it first, and deploy"])
    fleet, asked = _ask(environment, profile, role_arn) if not offline else (None, None)
    if fleet is not None and (refused := list(_unready(fleet, environment, source, target, count, ids))):
        return _refuse(refused)
    for line in _plan_words(environment, source, target, count, ids, fleet):
        click.echo(line)
    click.echo(_diff(before, after, str(path)), nl=False)
    if not apply_:
        click.echo("Nothing was changed. Do it with --apply." if fleet else "Nothing was changed, and AWS was not asked.")
        return 0
    assert fleet is not None
    assert asked is not None
    return _move(asked, fleet, environment, before, path, source, target, count, ids, today=today)


def _refuse(reasons: list[str]) -> int:
    for reason in reasons:
        click.echo(f"Refused: {reason}.", err=True)
    return 1


def _environment(text: str, path: Path) -> "tuple[Environment | None, list[Finding]]":
    from dpd.environment.load import load_text  # noqa: PLC0415
    from dpd.environment.yaml_file import YamlError  # noqa: PLC0415

    try:
        found = load_text(text, path)
    except YamlError as error:
        raise click.ClickException(f"{path}: {error.message}.") from None
    return found.environment, found.findings


def _impossible(environment: "Environment", source: str, target: str, count: int) -> Iterator[str]:
    """What the file alone says against it."""
    groups = environment.cluster.groups
    missing = [name for name in (source, target) if name not in groups]
    if missing:
        yield f"there is no group {missing[0][:63]!r}; there are: {', '.join(groups)}"
        return
    gives, gets = groups[source], groups[target]
    if source == target:
        yield "a group gives no nodes to itself"
    if gives.instance_type != gets.instance_type:
        yield f"{source} has {gives.instance_type} and {target} {gets.instance_type}; nodes keep their type"
    if gives.capacity != gets.capacity:
        yield f"{source} and {target} are bought differently; a node keeps its capacity, and {target} would not be what the file says"
    if count > gives.count:
        yield f"{source} has {gives.count} nodes"


def _edited(
    environment: "Environment", before: str, path: Path, source: str, target: str, count: int, *, today: date
) -> "tuple[str, list[Finding]]":
    """The file with the new counts, and the errors that it has not now. A role that scales begins with what is left for it."""
    from commands.edits import new_errors  # noqa: PLC0415
    from dpd.environment.yaml_edit import EditError, edited  # noqa: PLC0415

    try:
        after = edited(before, _changes(environment, source, target, count))
    except EditError as error:
        raise click.ClickException(f"{path} cannot be edited: {error}.") from None
    return after, new_errors(path, before, after, today=today)


def _changes(environment: "Environment", source: str, target: str, count: int) -> list[tuple[tuple[str | int, ...], Any]]:
    from dpd.sizing.expert_parallel import pod_gpus, pods_per_replica  # noqa: PLC0415
    from dpd.sizing.fleet import roles_on_gpus  # noqa: PLC0415

    groups = environment.cluster.groups
    left = groups[source].count - count
    changes: list[tuple[tuple[str | int, ...], Any]] = [
        (("cluster", "groups", source, "count"), left),
        (("cluster", "groups", target, "count"), groups[target].count + count),
    ]
    mine = [it for it in roles_on_gpus(environment) if it.placed.role.group == source]
    for it in mine:
        role, scaling = it.placed.role, it.placed.role.autoscaling
        room = left * (it.instance.gpus // pod_gpus(role, it.instance)) // pods_per_replica(role) // len(mine)
        if scaling and scaling.min_replicas <= room < role.replicas:
            index = int(it.placed.endpoint_path.removeprefix("endpoints[").removesuffix("]"))
            changes.append((("endpoints", index, it.placed.name, "replicas"), room))
    return changes


def _ask(environment: "Environment", profile: str | None, role_arn: str | None) -> "tuple[Fleet, Clients]":
    """The cluster as it is. Raises ``UnableError`` when AWS does not say."""
    asked = clients(profile=profile, role_arn=role_arn, region=environment.region)
    from botocore.exceptions import ClientError  # noqa: PLC0415

    from aws_reads.fleet import fleet  # noqa: PLC0415
    from aws_reads.session import UNREACHABLE, CredentialsError, caller  # noqa: PLC0415
    from dpd.environment.names import Names  # noqa: PLC0415

    try:
        account, _ = caller(asked)
        if account != environment.account:
            raise UnableError(f"The credentials are of account {account}; {environment.name} is in {environment.account}.")
        name = Names.of(environment).hyperpod_cluster
        found = fleet(asked, name)
    except CredentialsError as error:
        raise UnableError(str(error)) from None
    except ClientError as error:
        raise UnableError(f"AWS refused {error.operation_name} ({error.response['Error'].get('Code', '')[:60]}).") from None
    except UNREACHABLE as error:
        raise UnableError(f"SageMaker did not answer ({type(error).__name__}).") from None
    if found is None:
        raise UnableError(f"There is no cluster {name} in {environment.region}. Deploy it first.")
    return found, asked


def _unready(fleet: "Fleet", environment: "Environment", source: str, target: str, count: int, ids: tuple[str, ...]) -> Iterator[str]:
    """What the cluster as it is says against it."""
    if fleet.status != "InService":
        yield f"the cluster is {fleet.status}; nodes move while it is InService"
    if fleet.mode != "Continuous":
        yield "the cluster does not provision its nodes continuously, which MoveClusterNodes asks for"
    if fleet.autoscaler:
        yield f"{fleet.autoscaler} adds and takes nodes on this cluster by itself, and would undo the move"
    for name in (source, target):
        group = fleet.groups.get(name)
        wanted = environment.cluster.groups[name].count
        if group is None:
            yield f"the cluster has no group {name}; deploy the file first"
        elif group.current != wanted or group.target != wanted:
            yield f"{name} has {group.current} nodes of {group.target} and the file says {wanted}; deploy, or correct the file, first"
    if (gives := fleet.groups.get(source)) is not None:
        yield from _nodes(gives, count, ids)


def _nodes(group: "Group", count: int, ids: tuple[str, ...]) -> Iterator[str]:
    known = {node.id: node.status for node in group.nodes}
    for one in dict.fromkeys(ids):
        if one not in known:
            yield f"{one[:40]} is not in {group.name}; there are: {', '.join(known) or 'none'}"
        elif known[one] != "Running":
            yield f"{one} is {known[one]}; only a node that is Running can be moved"
    if not ids and len(group.running) < count:
        states = ", ".join(sorted({status for status in known.values() if status != "Running"})) or "missing"
        yield f"{len(group.running)} nodes of {group.name} are Running, and {count} are asked for (the others: {states})"


def _plan_words(
    environment: "Environment", source: str, target: str, count: int, ids: tuple[str, ...], fleet: "Fleet | None"
) -> Iterator[str]:
    from dpd.sizing.fleet import roles  # noqa: PLC0415

    groups, some = environment.cluster.groups, f"{count} node" + ("s" if count > 1 else "")
    chosen = ", ".join(dict.fromkeys(ids)) or "chosen by HyperPod"
    yield f"{some} of {groups[source].instance_type} from {source} to {target} ({chosen}):"
    for name, change in ((source, -count), (target, count)):
        who = ", ".join(placed.label for placed in roles(environment) if placed.role.group == name) or "nobody"
        yield f"  {name:<12} {groups[name].count} -> {groups[name].count + change} nodes, for {who}"
    if fleet is not None and not ids:
        yield f"  of these: {', '.join(node.id for node in fleet.groups[source].running)}"
    yield _WIPED
    yield "Then deploy the file with the new counts: until then the next deployment would undo the move, with a new node that is billed."


def _diff(before: str, after: str, name: str) -> str:
    import difflib  # noqa: PLC0415

    return "".join(difflib.unified_diff(before.splitlines(keepends=True), after.splitlines(keepends=True), name, name, n=1))


def _move(
    asked: "Clients", fleet: "Fleet", environment: "Environment", before: str, path: Path, source: str, target: str, count: int,
    ids: tuple[str, ...], *, today: date,
) -> int:  # fmt: skip
    from botocore.exceptions import ClientError  # noqa: PLC0415

    from aws_reads.session import UNREACHABLE  # noqa: PLC0415
    from commands.files import write_whole  # noqa: PLC0415

    which: dict[str, Any] = {"NodeIds": list(dict.fromkeys(ids))} if ids else {"InstanceCount": count}
    sagemaker = asked("sagemaker")
    if not hasattr(sagemaker, "move_cluster_nodes"):
        raise UnableError("This botocore does not know MoveClusterNodes. Install a newer one: pip install -U botocore")
    try:
        answer = sagemaker.move_cluster_nodes(
            SourceClusterArn=fleet.arn, SourceInstanceGroupName=source, TargetClusterArn=fleet.arn, TargetInstanceGroupName=target,
            ClientToken=uuid.uuid4().hex, **which,
        )  # fmt: skip
    except ClientError as error:
        code, said = error.response["Error"].get("Code", "")[:60], error.response["Error"].get("Message", "")
        if code in _DENIED:
            raise UnableError(
                f"The caller may not call MoveClusterNodes ({code}). Allow sagemaker:MoveClusterNodes on the cluster."
            ) from None
        from dpd.finding import safe  # noqa: PLC0415

        return _refuse([f"SageMaker moved nothing ({code}): {safe(said, most=300).rstrip('.')}"])
    except UNREACHABLE as error:
        raise UnableError(
            f"SageMaker did not answer ({type(error).__name__}): whether nodes move is not known. Look with: "
            f"aws sagemaker list-cluster-nodes --cluster-name {fleet.arn.rpartition('/')[2]}"
        ) from None
    moving, failed = answer.get("Successful", []), answer.get("Failed", [])
    if moving:
        after, _ = _edited(environment, before, path, source, target, len(moving), today=today)
        write_whole(path, after)
        click.echo(f"Moving: {', '.join(moving)}. The counts in {path} are the new ones; deploy them when the nodes have arrived.")
    for one in failed:
        click.echo(f"Not moved: {one['NodeId']} ({one['Code']}): {one['Message'][:200]}", err=True)
    return 1 if failed or not moving else 0
