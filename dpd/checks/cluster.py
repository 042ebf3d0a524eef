"""Rules about the cluster: its groups, its add-ons, who may use it, and where it can be."""

import difflib
import re
from collections.abc import Iterator
from typing import Final

from dpd.catalog import add_ons, instances, kubernetes, limits, regions
from dpd.catalog.add_ons import version_key
from dpd.checks.registry import Context, Problem, check
from dpd.environment.cluster import PublicAccess, TrainingPlan
from dpd.environment.environment import Environment
from dpd.environment.names import NODE_HEALTH_TAINT
from dpd.finding import Level

_GROUPS: Final = "https://docs.aws.amazon.com/sagemaker/latest/APIReference/API_ClusterInstanceGroupSpecification.html"
_EKS: Final = "https://docs.aws.amazon.com/sagemaker/latest/dg/sagemaker-hyperpod-eks-prerequisites.html"
_ADD_ONS: Final = "https://docs.aws.amazon.com/eks/latest/userguide/workloads-add-ons-available-eks.html"
_ENTRIES: Final = "https://docs.aws.amazon.com/eks/latest/userguide/creating-access-entries.html"
_LABELS: Final = "https://kubernetes.io/docs/concepts/overview/working-with-objects/labels/#syntax-and-character-set"
_HELM: Final = "https://docs.aws.amazon.com/sagemaker/latest/dg/sagemaker-hyperpod-eks-install-packages-using-helm-chart.html"
_DEEP: Final = "https://docs.aws.amazon.com/sagemaker/latest/dg/sagemaker-hyperpod-eks-resiliency-deep-health-checks.html"
_TIERED: Final = "https://docs.aws.amazon.com/sagemaker/latest/dg/managed-tier-checkpointing.html"

_ROLE: Final = re.compile(r"arn:aws[a-z-]*:iam::[0-9]{12}:role/(?!aws-service-role/)[\w+=,.@/-]+")
_NAME: Final = re.compile(r"[A-Za-z0-9]([A-Za-z0-9_.-]{0,61}[A-Za-z0-9])?")
_PREFIX: Final = re.compile(r"[a-z0-9]([a-z0-9-]*[a-z0-9])?(\.[a-z0-9]([a-z0-9-]*[a-z0-9])?)*")
_LONGEST_PREFIX: Final = 253


def _has_gpus(instance_type: str) -> bool | None:
    instance = instances.find(instance_type)
    return None if instance is None else instance.gpus > 0


@check(
    "CLU001",
    "GPU nodes say how they are bought",
    why="On-demand p5 nodes are billed by the hour from the moment that they start; a default would spend money that nobody agreed to.",
    link=_GROUPS,
)
def capacity(environment: Environment, _: Context) -> Iterator[Problem]:
    """Ask every group with GPUs for `capacity`."""
    for name, group in environment.cluster.groups.items():
        if group.capacity is None and _has_gpus(group.instance_type):
            yield Problem(
                path=f"cluster.groups.{name}.capacity",
                message=f"is missing, and {group.instance_type} has GPUs",
                limit="on_demand, spot, or {training_plan_arn: …, availability_zone_id: …}",
                fix="say how the nodes are bought",
            )


@check(
    "CLU002",
    "A group's ceiling is not below its count",
    why="Addresses, connections and quotas are reckoned with the ceiling; one below the count reserves nothing for what is there.",
    link=_GROUPS,
)
def ceiling(environment: Environment, _: Context) -> Iterator[Problem]:
    """Compare max_count with count."""
    for name, group in environment.cluster.groups.items():
        if group.max_count is not None and group.max_count < group.count:
            yield Problem(
                path=f"cluster.groups.{name}.max_count",
                message=f"count is {group.count}",
                value=group.max_count,
                limit=f"at least {group.count}",
                fix="raise it, or leave it out",
            )


@check(
    "CLU003",
    "A training plan belongs to this account and Region",
    why="HyperPod looks the plan up when it makes the group. A plan of another account or Region is not found, after everything else "
    "was made.",
    link="https://docs.aws.amazon.com/sagemaker/latest/dg/reserve-capacity-with-training-plans.html",
)
def plans(environment: Environment, _: Context) -> Iterator[Problem]:
    """Check kind, Region and account of every plan's ARN."""
    for name, group in environment.cluster.groups.items():
        if not isinstance(group.capacity, TrainingPlan):
            continue
        arn = group.capacity.training_plan_arn
        service, region, account, resource = arn.split(":", 5)[2:]
        path = f"cluster.groups.{name}.capacity.training_plan_arn"
        if service != "sagemaker" or not resource.startswith("training-plan/"):
            yield Problem(path, "is not the ARN of a training plan", "copy it from: aws sagemaker list-training-plans", arn)
        elif (region, account) != (environment.region, environment.account):
            yield Problem(
                path,
                f"is a plan of account {account} in {region}",
                "use a plan of this account and Region",
                arn,
                f"{environment.account} in {environment.region}",
            )


def _key_fault(key: str) -> str:
    """What Kubernetes refuses about the key of a label or taint; empty when nothing."""
    prefix, slash, name = key.rpartition("/")
    if not _NAME.fullmatch(name):
        return "must end in a name of at most 63 letters, digits, '-', '_' and '.'"
    if slash and not (len(prefix) <= _LONGEST_PREFIX and _PREFIX.fullmatch(prefix)):
        return "must begin with a DNS name before its '/'"
    return ""


def _owner(key: str) -> str:
    """Whose the key of a label or taint is; empty when anybody's."""
    prefix = key.rpartition("/")[0]
    return next((own for own in limits.words("label_prefixes") if prefix == own or prefix.endswith(f".{own}")), "")


@check(
    "CLU004",
    "Labels and taints are ones that Kubernetes takes",
    why="HyperPod sets them again and again on every node. One that Kubernetes refuses is refused for ever, and one that HyperPod owns is "
    f"overwritten: {NODE_HEALTH_TAINT} as a taint of yours takes every node out of service.",
    link=_LABELS,
)
def labels_and_taints(environment: Environment, _: Context) -> Iterator[Problem]:
    """Check syntax, owner and uniqueness of labels and taints."""
    for name, group in environment.cluster.groups.items():
        place = f"cluster.groups.{name}"
        pairs = [(f"{place}.labels.{key}", key, value) for key, value in group.labels.items()]
        pairs += [(f"{place}.taints[{index}]", taint.key, taint.value) for index, taint in enumerate(group.taints)]
        for path, key, value in pairs:
            fault, owner = _key_fault(key), _owner(key)
            if fault:
                yield Problem(path, f"the key {fault}", "correct the key", key)
            elif owner:
                yield Problem(path, f"the key belongs to {owner}", "use a prefix of your own, such as example.com/", key)
            elif value and not _NAME.fullmatch(value):
                yield Problem(
                    path,
                    "the value is not a label value",
                    "correct the value",
                    value,
                    "at most 63 letters, digits, '-', '_' and '.', with a letter or digit at both ends",
                )
        seen: set[tuple[str, str]] = set()
        for index, taint in enumerate(group.taints):
            if (taint.key, taint.effect) in seen:
                yield Problem(f"{place}.taints[{index}]", "has the key and effect of another taint", "keep one of them", taint.key)
            seen.add((taint.key, taint.effect))


@check(
    "CLU005",
    "The EFA plugin of HyperPod's chart tolerates the taints",
    why="The chart's EFA device plugin tolerates a fixed list, and nvidia.com/gpu is not on it: nodes with that taint have GPUs and no "
    "EFA, "
    "and KV is handed over by TCP without a word. The plugin that this tool installs tolerates every taint of the groups.",
    link=_HELM,
    level=Level.WARNING,
)
def chart_tolerations(environment: Environment, _: Context) -> Iterator[Problem]:
    """Warn of taints on GPU groups where the chart was installed by somebody else."""
    existing = environment.cluster.existing
    if existing is None or existing.prerequisites != "exists":
        return
    tolerated = limits.words("chart_efa_plugin_tolerations")
    for name, group in environment.cluster.groups.items():
        for index, taint in enumerate(group.taints if _has_gpus(group.instance_type) else ()):
            if taint.key not in tolerated and taint.effect != "PreferNoSchedule":
                yield Problem(
                    path=f"cluster.groups.{name}.taints[{index}]",
                    message="the EFA device plugin of the chart that runs there does not tolerate this taint by default",
                    value=taint.key,
                    limit=", ".join(tolerated),
                    fix="remove the taint, or add the toleration to the chart's values and acknowledge this",
                )


@check(
    "CLU006",
    "Deep health checks are meant",
    why="Deep health checks stress GPUs and network before a node may run pods. They add a long start, billed, and UpdateCluster fails "
    "meanwhile.",
    link=_DEEP,
    level=Level.INFO,
)
def deep_checks(environment: Environment, _: Context) -> Iterator[Problem]:
    """Say what they cost; refuse them where there is nothing to test."""
    for name, group in environment.cluster.groups.items():
        if not group.deep_health_checks:
            continue
        path = f"cluster.groups.{name}.deep_health_checks"
        value = ", ".join(group.deep_health_checks)
        if _has_gpus(group.instance_type) is False:
            yield Problem(
                path,
                f"{group.instance_type} has no accelerator to test",
                "remove it; deep health checks are for accelerators",
                value,
                level=Level.ERROR,
            )
        elif len(set(group.deep_health_checks)) < len(group.deep_health_checks):
            yield Problem(path, "names a check twice", "name each check once", value, level=Level.ERROR)
        else:
            yield Problem(
                path, "new nodes are billed while they are tested and serve nothing", "leave it out to start sooner, or keep it", value
            )


@check(
    "CLU007",
    "Changed add-ons exist",
    why="A change of a misspelt add-on changes nothing: the version that was to be avoided is installed.",
    link=_ADD_ONS,
)
def known_add_ons(environment: Environment, _: Context) -> Iterator[Problem]:
    """Refuse add-on names that the version table does not have."""
    known = [add_on.name for add_on in add_ons.all_add_ons()]
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
        known = add_ons.find(name)
        if known is None or change.version is None:
            continue
        path = f"cluster.add_ons.{name}.version"
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
    "CLU011",
    "Cluster administrators are IAM roles, each once",
    why="An access entry names a lasting principal. A session ARN (sts, assumed-role) is accepted by nobody, and one principal has one "
    "entry "
    "in a cluster.",
    link=_ENTRIES,
    seen_in=("https://github.com/terraform-aws-modules/terraform-aws-eks/issues/3206", "https://github.com/aws/aws-cdk/issues/30888"),
)
def administrators(environment: Environment, _: Context) -> Iterator[Problem]:
    """Check the form of every administrator's ARN, and look for one that stands twice."""
    seen: set[str] = set()
    for index, arn in enumerate(environment.cluster.admin_role_arns):
        path = f"cluster.admin_role_arns[{index}]"
        if not _ROLE.fullmatch(arn):
            session = ":assumed-role/" in arn
            yield Problem(
                path=path,
                message="is a session, which ends; access entries name the role itself" if session else "is not an IAM role",
                value=arn,
                limit="arn:aws:iam::<account>:role/<path and name>",
                fix="write the role's ARN with its path: aws iam get-role --role-name … --query Role.Arn",
            )
        elif arn in seen:
            yield Problem(path=path, message="stands twice", value=arn, fix="keep one of them")
        seen.add(arn)


@check(
    "CLU012",
    "Somebody can use the cluster",
    why="Only roles with an access entry get past the Kubernetes API; the account's administrators do not by themselves.",
    link=_ENTRIES,
    level=Level.INFO,
)
def somebody(environment: Environment, _: Context) -> Iterator[Problem]:
    """Say when no administrator is named for a cluster to make."""
    if not environment.cluster.admin_role_arns and environment.cluster.existing is None:
        yield Problem(
            path="cluster.admin_role_arns",
            message="is empty: only this tool's own role can use kubectl on the cluster",
            fix="add the ARN of the role that your team assumes",
        )


@check(
    "CLU013",
    "An adopted cluster lets HyperPod in",
    why="HyperPod makes access entries for its nodes and refuses a cluster that only reads aws-auth.",
    link=_EKS,
    seen_in=(
        "https://github.com/terraform-aws-modules/terraform-aws-eks/issues/3206",
        "https://github.com/awslabs/cdk-eks-blueprints/issues/1115",
    ),
)
def authentication(environment: Environment, _: Context) -> Iterator[Problem]:
    """Refuse the authentication mode CONFIG_MAP."""
    existing = environment.cluster.existing
    if existing and existing.authentication_mode == "CONFIG_MAP":
        yield Problem(
            path="cluster.existing.authentication_mode",
            message="has no access entries",
            value=existing.authentication_mode,
            limit="API_AND_CONFIG_MAP or API",
            fix=f"aws eks update-cluster-config --name {existing.name} --access-config authenticationMode=API_AND_CONFIG_MAP, "
            "then change this",
        )


@check(
    "CLU014",
    "An adopted cluster's identity provider is its own",
    why="The operator's roles trust the cluster's issuer. With another issuer, account or Region every pod is denied: "
    "AssumeRoleWithWebIdentity 403.",
    link="https://docs.aws.amazon.com/eks/latest/userguide/enable-iam-roles-for-service-accounts.html",
)
def identity(environment: Environment, _: Context) -> Iterator[Problem]:
    """Compare the provider's ARN with the issuer, the account and the Region."""
    existing = environment.cluster.existing
    if existing is None:
        return
    host = existing.oidc_issuer.removeprefix("https://")
    expected = f":iam::{environment.account}:oidc-provider/{host}"
    if not existing.oidc_provider_arn.endswith(expected):
        yield Problem(
            path="cluster.existing.oidc_provider_arn",
            message="is not the provider of this issuer in this account",
            value=existing.oidc_provider_arn,
            limit=f"arn:aws{expected}",
            fix="copy it from: aws iam list-open-id-connect-providers",
        )
    if f".{environment.region}." not in f"{host.partition('/')[0]}.":
        yield Problem(
            path="cluster.existing.oidc_issuer",
            message=f"is not an issuer of {environment.region}",
            value=existing.oidc_issuer,
            limit=environment.region,
            fix="adopt a cluster of the environment's Region",
        )


@check(
    "CLU015",
    "An adopted cluster brings its network",
    why="HyperPod puts its nodes into the VPC of the EKS cluster. Nodes in a new VPC would never reach the control plane.",
    link=_EKS,
)
def network(environment: Environment, _: Context) -> Iterator[Problem]:
    """Ask for the adopted network of an adopted cluster."""
    if environment.cluster.existing and environment.network.existing is None:
        yield Problem(
            path="network.existing",
            message="cluster.existing adopts an EKS cluster, and the network would be a new one",
            fix="describe the cluster's VPC and subnets in network.existing",
        )


@check(
    "CLU016",
    "Managed tiered storage is on where it is used, and off where not",
    why="Without it the second cache tier has no daemon to talk to; where nobody uses it, it takes memory from the pods.",
    link=_TIERED,
)
def tiered_storage(environment: Environment, _: Context) -> Iterator[Problem]:
    """Compare kv.shared_tier of all endpoints with cluster.tiered_storage_memory_percent."""
    users = [index for index, endpoint in enumerate(environment.endpoints) if endpoint.kv.shared_tier == "tiered_storage"]
    percent = environment.cluster.tiered_storage_memory_percent
    for index in users if percent is None else ():
        yield Problem(
            path=f"endpoints[{index}].kv.shared_tier",
            message="the cluster has no managed tiered storage",
            value="tiered_storage",
            fix="set cluster.tiered_storage_memory_percent, such as 20",
        )
    if percent is not None and not users:
        yield Problem(
            path="cluster.tiered_storage_memory_percent",
            message=f"no endpoint uses the {percent} % of memory that every node gives up",
            value=percent,
            fix="remove it, or set kv.shared_tier: tiered_storage on an endpoint",
            level=Level.WARNING,
        )


@check(
    "CLU017",
    "Tenants do not share a cache that nothing encrypts",
    why="Managed tiered storage is one pool for all deployments of a cluster, and is not encrypted at rest: prompts of one tenant lie "
    "beside "
    "another's.",
    link="https://docs.aws.amazon.com/sagemaker/latest/dg/sagemaker-hyperpod-model-deployment-caching-routing.html",
    level=Level.WARNING,
)
def shared_pool(environment: Environment, _: Context) -> Iterator[Problem]:
    """Warn when endpoints of several namespaces use the pool."""
    users = [
        (index, endpoint.namespace) for index, endpoint in enumerate(environment.endpoints) if endpoint.kv.shared_tier == "tiered_storage"
    ]
    namespaces = sorted({namespace for _index, namespace in users})
    if len(namespaces) > 1:
        yield Problem(
            path=f"endpoints[{users[-1][0]}].kv.shared_tier",
            message=f"endpoints of {', '.join(namespaces)} share one pool",
            value="tiered_storage",
            fix="give each tenant a redis of its own, or acknowledge this when they are one tenant",
        )


@check(
    "CLU018",
    "The operator is available in the Region",
    why="The operator's images are in a fixed list of Regions; elsewhere its add-on fails with 'Unsupported AWS Region' after the "
    "nodes run.",
    link="https://docs.aws.amazon.com/sagemaker/latest/dg/sagemaker-hyperpod-model-deployment.html",
)
def operator_region(environment: Environment, _: Context) -> Iterator[Problem]:
    """Compare the Region with the operator's."""
    if any(endpoint.backend == "operator" for endpoint in environment.endpoints) and environment.region not in regions.operator_regions():
        yield Problem(
            path="region",
            message="AWS's chart of the inference operator has no image for this Region",
            value=environment.region,
            limit=", ".join(regions.operator_regions()),
            fix="move the environment to one of these",
        )


@check(
    "CLU019",
    "Node agents have an image in the Region",
    why="HyperPod's health monitoring agent and the EFA device plugin come from accounts that differ by Region. Without the first, failed "
    "nodes stay; without the second, there is no EFA.",
    link=_HELM,
    binding=True,
)
def agent_images(environment: Environment, _: Context) -> Iterator[Problem]:
    """Ask for a repository where no account is known for the Region."""
    cluster, region = environment.cluster, regions.find(environment.region)
    if cluster.existing and cluster.existing.prerequisites == "exists":
        return
    known = {
        "health_monitoring_agent": region.health_agent_account if region else "",
        "efa_device_plugin": region.efa_plugin_account if region else "",
    }
    for agent, account in known.items():
        if not account and agent not in cluster.agent_repositories:
            yield Problem(
                path=f"cluster.agent_repositories.{agent}",
                message=f"no account is known that serves its image in {environment.region}",
                fix="name a repository that holds a copy of the image, or move the environment to another Region",
            )


@check(
    "CLU020",
    "Serving nodes are not taken back at two minutes' notice",
    why="EC2 takes spot capacity back when others pay for it. An endpoint has one decode role: with its node every request ends, and "
    "nobody says when a node of this size comes back.",
    link="https://docs.aws.amazon.com/AWSEC2/latest/UserGuide/spot-interruptions.html",
    level=Level.WARNING,
)
def spot(environment: Environment, _: Context) -> Iterator[Problem]:
    """Warn of spot capacity under a role or under the system pods, once for each group."""
    groups = environment.cluster.groups.items()
    used = {name: "what DNS, webhooks and routers need" for name, group in groups if _has_gpus(group.instance_type) is False}
    used |= {role.group: f"endpoints[{index}].{name}" for index, one in enumerate(environment.endpoints) for name, role in one.roles}
    for name, group in environment.cluster.groups.items():
        if group.capacity == "spot" and name in used:
            yield Problem(
                path=f"cluster.groups.{name}.capacity",
                message=f"{used[name]} runs on nodes that can be taken away",
                value=group.capacity,
                fix="use on_demand or a training plan, or acknowledge this where an outage is accepted",
            )


@check(
    "CLU021",
    "Nothing that is said of an adopted cluster is ignored",
    why="The control plane of an adopted cluster and the add-ons that it started with are left as they are. A setting here would look "
    "applied and change nothing.",
    link=_EKS,
)
def ignored(environment: Environment, _: Context) -> Iterator[Problem]:
    """Refuse control-plane settings and core add-ons beside an adopted cluster."""
    cluster = environment.cluster
    if cluster.existing is None:
        return
    core = [add_on.name for add_on in add_ons.all_add_ons() if not add_on.needs_nodes]
    given = [f"add_ons.{name}" for name, change in cluster.add_ons.items() if name in core and change.version]
    given += ["api_access"] if isinstance(cluster.api_access, PublicAccess) else []
    given += ["raw.eks"] if cluster.raw.eks else []
    for key in given:
        yield Problem(
            path=f"cluster.{key}",
            message="would be ignored: the adopted cluster has its own, which this tool leaves alone",
            fix="remove it, and change the cluster where it is made",
        )


@check(
    "CLU022",
    "Only nodes with EFA have EFA interfaces",
    why="HyperPod refuses an EFA interface on a type without EFA when it makes the group, after everything else was made.",
    link="https://docs.aws.amazon.com/AWSEC2/latest/UserGuide/efa.html",
)
def efa_interfaces(environment: Environment, _: Context) -> Iterator[Problem]:
    """Refuse `network_interface` on groups whose nodes have no EFA device."""
    for name, group in environment.cluster.groups.items():
        instance = instances.find(group.instance_type)
        if group.network_interface and instance and not instance.efa:
            yield Problem(
                path=f"cluster.groups.{name}.network_interface",
                message=f"{instance.type} has no EFA device",
                value=group.network_interface,
                fix="remove it",
            )
