"""First layer: what AWS says of the things under the cluster."""

import re
from collections import Counter
from typing import Any, Final
from urllib.parse import unquote

from health_gate.patterns import LOGS, named
from health_gate.result import Patience, Result, check, failed, passed, unknown
from health_gate.spec import AddOn, Role
from health_gate.view import View

_EFA: Final = "https://docs.aws.amazon.com/AWSEC2/latest/UserGuide/efa-start.html"
_LOST: Final = {"Failed", "Deleting", "RollingBack"}
_BROKEN_NODES: Final = {"Failure", "NotFound"}
_SHOWN: Final = 5
_TEXT: Final = 300


def _cluster(view: View) -> dict[str, Any]:
    def describe() -> dict[str, Any]:
        found: dict[str, Any] = view.aws("sagemaker").describe_cluster(ClusterName=view.spec.hyperpod_cluster)
        return found

    return view.memory.once("cluster", describe)


def _listed(items: Any) -> str:
    texts = [str(item) for item in items]
    return ", ".join(texts[:_SHOWN]) + (f" and {len(texts) - _SHOWN} more" if len(texts) > _SHOWN else "")


@check(
    "aws.cluster",
    proves="The HyperPod cluster is InService and orchestrated by the expected EKS cluster.",
    cannot="That its nodes work: a cluster with continuous provisioning is InService without a single GPU node.",
)
def cluster(view: View) -> Result:
    """The HyperPod cluster."""
    found = _cluster(view)
    status = found["ClusterStatus"]
    orchestrator = found.get("Orchestrator") or {}
    arn = (orchestrator.get("Eks") or {}).get("ClusterArn", "")
    if not arn:
        kind = ", ".join(orchestrator) or "Slurm"
        return failed(
            f"The HyperPod cluster is orchestrated by {kind}, not by EKS.", "Name a cluster whose orchestrator is EKS.", status=status
        )
    if arn != view.spec.eks_cluster_arn:
        return failed(
            "The HyperPod cluster is attached to another EKS cluster.", "Correct eks_cluster_arn, or the cluster's name.", attached=arn
        )
    if status != "InService":
        said = str(found.get("FailureMessage") or "")[:_TEXT]
        known = named(said, LOGS)
        return failed(
            f"The HyperPod cluster is {status}. {said}".rstrip(),
            known.remedy if known else "See the cluster's events.",
            link=known.link if known else "",
            patience=Patience.NEVER if status in _LOST else Patience.DEADLINE,
            status=status,
        )
    return passed("InService, orchestrated by EKS.", status=status)


@check(
    "aws.groups",
    proves="Every instance group has its type and as many Running nodes as configured, counted over all pages.",
    cannot="That Kubernetes can use the nodes.",
    seconds=40,
    needs=("aws.cluster",),
)
def groups(view: View) -> Result:
    """Instance groups and their nodes."""
    found = {group["InstanceGroupName"]: group for group in _cluster(view).get("InstanceGroups") or ()}
    running: Counter[str] = Counter()
    broken: list[str] = []
    said = ""
    for page in view.aws("sagemaker").get_paginator("list_cluster_nodes").paginate(ClusterName=view.spec.hyperpod_cluster):
        for node in page["ClusterNodeSummaries"]:
            status = node["InstanceStatus"]
            running[node["InstanceGroupName"]] += status["Status"] == "Running"
            if status["Status"] in _BROKEN_NODES and node["InstanceGroupName"] in view.spec.groups:
                broken.append(f"{node['InstanceGroupName']}/{node['InstanceId']} {status['Status']}")
                said = said or str(status.get("Message") or "")[:_TEXT]
    evidence = {name: f"{running[name]} running of {group.count}" for name, group in view.spec.groups.items()}
    for name, group in view.spec.groups.items():
        if name not in found:
            return failed(f"There is no instance group {name}.", "Deploy the cluster again with this group.").with_evidence(**evidence)
        kind = found[name].get("InstanceType")
        if kind and kind != group.instance_type:
            return failed(f"Group {name} has {kind} instead of {group.instance_type}.", "Correct the group's instance type.")
    if broken:
        known = named(said, LOGS)
        remedy = known.remedy if known else "Replace the nodes; read their message and the lifecycle script's log."
        return failed(f"Nodes do not start: {_listed(broken)}. {said}".rstrip(), remedy, patience=Patience.DEADLINE).with_evidence(
            **evidence
        )
    if short := [name for name, group in view.spec.groups.items() if running[name] < group.count]:
        return failed(
            f"Groups below their count: {_listed(f'{name} {evidence[name]}' for name in short)}.",
            "Wait for capacity; check quota, training plan and the cluster's events.",
            patience=Patience.DEADLINE,
        ).with_evidence(**evidence)
    return passed("Every group has its nodes.", **evidence)


@check(
    "aws.zone",
    proves="The subnets of every GPU group are in the configured AZ, so no node of theirs can be elsewhere.",
    cannot="Distance inside the AZ.",
    needs=("aws.cluster",),
)
def zone(view: View) -> Result:
    """The AZ of the GPU groups' subnets."""
    described = _cluster(view)
    subnets = {
        name: ((group.get("OverrideVpcConfig") or described.get("VpcConfig") or {}).get("Subnets") or [])
        for group in described.get("InstanceGroups") or ()
        if (name := group["InstanceGroupName"]) in view.spec.accelerated
    }
    ids = sorted({subnet for each in subnets.values() for subnet in each})
    if not ids:
        return unknown("No GPU group says which subnets it uses.", "Give each GPU group its subnet.")
    zones = {each["SubnetId"]: each["AvailabilityZoneId"] for each in view.aws("ec2").describe_subnets(SubnetIds=ids)["Subnets"]}
    wrong = [
        f"{name} in {zones.get(subnet, 'no known AZ')}"
        for name, each in subnets.items()
        for subnet in each
        if zones.get(subnet) != view.spec.zone_id
    ]
    if wrong:
        return failed(
            f"GPU groups can start nodes outside of {view.spec.zone_id}: {_listed(wrong)}.",
            "Pin all GPU groups to one subnet in that AZ: EFA traffic cannot cross AZs.",
            link=_EFA,
        )
    return passed(f"All GPU groups are in {view.spec.zone_id}.", subnets=_listed(ids))


@check(
    "aws.security_groups",
    proves="Every security group on the nodes allows all traffic to and from itself, in and out.",
    cannot="Network ACLs, and groups that are attached to interfaces by hand.",
    needs=("aws.cluster",),
)
def security_groups(view: View) -> Result:
    """Rules to and from itself. EFA's traffic matches only rules whose peer is the group: 0.0.0.0/0 does not count."""
    described = _cluster(view)
    attached = {*view.spec.security_groups, *((described.get("VpcConfig") or {}).get("SecurityGroupIds") or ())}
    for group in described.get("InstanceGroups") or ():
        attached.update((group.get("OverrideVpcConfig") or {}).get("SecurityGroupIds") or ())
    if not attached:
        return unknown("No security group is known.", "Name the security groups in the spec.")
    found = view.aws("ec2").describe_security_groups(GroupIds=sorted(attached))["SecurityGroups"]
    missing = [
        f"{group['GroupId']} lacks {way} itself"
        for group in found
        for way, rules in (("ingress from", group.get("IpPermissions")), ("egress to", group.get("IpPermissionsEgress")))
        if not any(_all_to_itself(rule, group["GroupId"]) for rule in rules or ())
    ]
    missing += [f"{each} does not exist" for each in sorted(attached - {group["GroupId"] for group in found})]
    if missing:
        return failed(
            f"EFA cannot work: {_listed(missing)}.",
            "Allow all protocols with the group itself as the peer, in both directions. A rule to 0.0.0.0/0 does not count for EFA.",
            link=_EFA,
            groups=len(attached),
        )
    return passed("All attached groups allow all traffic with themselves.", groups=len(attached))


def _all_to_itself(rule: dict[str, Any], group_id: str) -> bool:
    return rule.get("IpProtocol") == "-1" and any(peer.get("GroupId") == group_id for peer in rule.get("UserIdGroupPairs") or ())


@check(
    "aws.lustre",
    proves="The Lustre file system is AVAILABLE in the AZ of the GPU nodes, and so is its data repository association.",
    cannot="That pods can mount it; `workload.pods` shows that.",
)
def lustre(view: View) -> Result | None:
    """The file system."""
    wanted = view.spec.lustre
    if wanted is None:
        return None
    fsx = view.aws("fsx")
    (system,) = fsx.describe_file_systems(FileSystemIds=[wanted.file_system_id])["FileSystems"]
    state = system["Lifecycle"]
    if state != "AVAILABLE":
        why = str((system.get("FailureDetails") or {}).get("Message", ""))[:_TEXT]
        wait = Patience.DEADLINE if state in {"CREATING", "UPDATING"} else Patience.NEVER
        return failed(f"The file system is {state}. {why}".rstrip(), "See the file system's failure message.", patience=wait, state=state)
    subnets = view.aws("ec2").describe_subnets(SubnetIds=system["SubnetIds"])["Subnets"]
    zones = sorted({subnet["AvailabilityZoneId"] for subnet in subnets})
    if zones != [view.spec.zone_id]:
        return failed(
            f"The file system is in {_listed(zones)}, the GPU nodes in {view.spec.zone_id}.", "Create it in the AZ of the GPU nodes."
        )
    return _associations(fsx, wanted.file_system_id) if wanted.associated else passed("AVAILABLE in the AZ of the GPU nodes.", state=state)


def _associations(fsx: Any, file_system_id: str) -> Result:
    filters = [{"Name": "file-system-id", "Values": [file_system_id]}]
    # A file system has at most eight, which is one page.
    links = fsx.describe_data_repository_associations(Filters=filters)["Associations"]
    if not links:
        return failed("The file system has no data repository association.", "Deploy the association with the model bucket.")
    for link in links:
        if (state := link["Lifecycle"]) != "AVAILABLE":
            why = str((link.get("FailureDetails") or {}).get("Message", ""))[:_TEXT]
            wait = Patience.DEADLINE if state in {"CREATING", "UPDATING"} else Patience.NEVER
            return failed(f"The association is {state}. {why}".rstrip(), "Check bucket policy, key policy and Region.", patience=wait)
    return passed("AVAILABLE, with its association.", associations=len(links))


@check(
    "aws.weights",
    proves="Each model's prefix holds objects with content, in a bucket of this Region.",
    cannot="That the files are complete or belong together.",
)
def weights(view: View) -> Result | None:
    """Model weights in S3."""
    if not view.spec.weights:
        return None
    s3 = view.aws("s3")
    for wanted in view.spec.weights:
        region = s3.head_bucket(Bucket=wanted.bucket).get("BucketRegion")
        if region != view.spec.region:
            return failed(
                f"The model bucket is in {region or 'an unknown Region'}, the cluster in {view.spec.region}.",
                "Copy the weights to a bucket of the cluster's Region.",
                bucket=wanted.bucket,
            )
        prefix = wanted.prefix.strip("/") + "/"
        listed = s3.list_objects_v2(Bucket=wanted.bucket, Prefix=prefix, MaxKeys=100).get("Contents") or []
        if not any(item["Size"] > 0 for item in listed):
            return failed(f"There is nothing below s3://{wanted.bucket}/{prefix}.", "Stage the weights, or correct the prefix.")
    return passed("The weights are there.", models=len(view.spec.weights))


@check(
    "aws.roles",
    proves="Roles have the name that policies demand and trust the service and the service account that use them.",
    cannot="What their policies allow.",
)
def roles(view: View) -> Result | None:
    """IAM roles."""
    for wanted in view.spec.roles:
        if not wanted.name.startswith(wanted.prefix):
            return failed(
                f"The role {wanted.name} must begin with {wanted.prefix}.", "Rename the role: a managed policy passes only such names."
            )
        found = view.aws("iam").get_role(RoleName=wanted.name)["Role"]["AssumeRolePolicyDocument"]
        if problem := _distrust(found, wanted):
            return failed(f"The role {wanted.name} does not trust {problem}.", "Add it to the role's trust policy.")
    return passed("Names and trust are right.", roles=len(view.spec.roles)) if view.spec.roles else None


def _distrust(document: Any, wanted: Role) -> str:
    if isinstance(document, str):
        import json  # noqa: PLC0415 - botocore decodes the document itself; a stub may not

        document = json.loads(unquote(document))
    statements = [each for each in _many(document.get("Statement")) if each.get("Effect") == "Allow"]
    services = {name for each in statements for name in _many((each.get("Principal") or {}).get("Service"))}
    if wanted.service and wanted.service not in services:
        return wanted.service
    subjects = [
        value
        for each in statements
        for conditions in (each.get("Condition") or {}).values()
        for key, values in conditions.items()
        if key.endswith(":sub")
        for value in _many(values)
    ]
    if wanted.subject and not any(_like(value, wanted.subject) for value in subjects):
        return wanted.subject
    return ""


def _like(pattern: str, text: str) -> bool:
    expression = "".join(".*" if each == "*" else "." if each == "?" else re.escape(each) for each in pattern)
    return re.fullmatch(expression, text) is not None


def _many(value: Any) -> list[Any]:
    return value if isinstance(value, list) else [] if value is None else [value]


@check(
    "aws.add_ons",
    proves="Add-ons are ACTIVE and not older than their floor.",
    cannot="That the version in the cluster was not changed by hand; `cluster.definitions` shows what it serves.",
)
def add_ons(view: View) -> Result | None:
    """EKS add-ons."""
    versions = {}
    for wanted in view.spec.add_ons:
        found = view.aws("eks").describe_addon(clusterName=view.spec.eks_cluster, addonName=wanted.name)["addon"]
        versions[wanted.name] = version = found.get("addonVersion", "")
        if problem := _add_on(wanted, found):
            return problem
        if _version(version) < _version(wanted.floor):
            return failed(f"The add-on {wanted.name} is {version}; {wanted.floor} is the floor.", "Update the add-on.", version=version)
    return passed("All add-ons are ACTIVE.", **versions) if versions else None


def _add_on(wanted: AddOn, found: dict[str, Any]) -> Result | None:
    status = found["status"]
    if status == "ACTIVE":
        return None
    issues = (found.get("health") or {}).get("issues") or []
    said = "; ".join(str(each.get("message") or each.get("code"))[:_TEXT] for each in issues[:2])
    wait = Patience.NEVER if status in {"CREATE_FAILED", "DELETING", "DELETE_FAILED"} else Patience.DEADLINE
    remedy = (
        "Delete the add-on and create it again; it needs amd64 CPU nodes with free pod slots."
        if status == "CREATE_FAILED"
        else "See its issues."
    )
    return failed(f"The add-on {wanted.name} is {status}. {said}".rstrip(), remedy, patience=wait, status=status)


def _version(text: str) -> tuple[int, ...]:
    return tuple(int(part) for part in re.findall(r"\d+", text))
