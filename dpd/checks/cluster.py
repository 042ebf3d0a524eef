"""Rules about the cluster as a whole: who administers it, what is adopted, where it may be."""

import re
from collections.abc import Iterator
from typing import Final

from dpd.catalog import add_ons, regions
from dpd.checks.registry import Context, Problem, check
from dpd.environment.cluster import PublicAccess
from dpd.environment.environment import Environment
from dpd.finding import Level

_EKS: Final = "https://docs.aws.amazon.com/sagemaker/latest/dg/sagemaker-hyperpod-eks-prerequisites.html"
_ENTRIES: Final = "https://docs.aws.amazon.com/eks/latest/userguide/creating-access-entries.html"
_HELM: Final = "https://docs.aws.amazon.com/sagemaker/latest/dg/sagemaker-hyperpod-eks-install-packages-using-helm-chart.html"
_TIERED: Final = "https://docs.aws.amazon.com/sagemaker/latest/dg/managed-tier-checkpointing.html"
_ROLE: Final = re.compile(r"arn:aws[a-z-]*:iam::[0-9]{12}:role/(?!aws-service-role/)[\w+=,.@/-]+")


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
