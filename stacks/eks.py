"""The EKS cluster, who may use it, and what HyperPod needs to find on it before its own cluster is made."""

from collections.abc import Mapping, Sequence
from typing import Any, Final

from aws_cdk import CfnOutput, Fn, RemovalPolicy, Stack
from aws_cdk import aws_eks as eks
from aws_cdk import aws_iam as iam
from aws_cdk import aws_kms as kms
from aws_cdk import aws_logs as logs
from constructs import Construct

from dpd.environment.cluster import AddOn, ExistingCluster, PublicAccess
from stacks.acknowledgements import accept, accept_newer_properties
from stacks.constructs.access import administrator
from stacks.constructs.add_ons import AddOns
from stacks.constructs.kubectl import Kubectl
from stacks.constructs.roles import role, service_trust
from stacks.values import EksValues, NetworkValues

_LOGS: Final = ("api", "audit", "authenticator", "controllerManager", "scheduler")
_HTTPS: Final = "https://"


class EksStack(Stack):
    """EKS cluster with access entries, the add-ons that need no node, and HyperPod's prerequisites."""

    def __init__(
        self,
        scope: Construct,
        id_: str,
        *,
        cluster_name: str,
        kubernetes_version: str,
        api_access: PublicAccess | None,
        admin_role_arns: Sequence[str],
        add_ons: Mapping[str, AddOn],
        existing: ExistingCluster | None,
        raw: Mapping[str, Any],
        prerequisites: Sequence[dict[str, Any]],
        network_policies: bool,
        network: NetworkValues,
        key: kms.IKey,
        log_retention: logs.RetentionDays,
        **stack: Any,
    ) -> None:
        """``network_policies`` is whether the CNI enforces them. By itself it takes such objects, and lets everybody in."""
        super().__init__(scope, id_, **stack)
        if existing is None:
            cluster = self._cluster(cluster_name, kubernetes_version, api_access, network, key, log_retention)
            for path, value in raw.items():
                cluster.add_property_override(path, value)
            if raw:
                accept_newer_properties(cluster)
            provider = iam.CfnOIDCProvider(
                # No thumbprint: IAM trusts the certificate authority of EKS issuers and fetches it by itself.
                self, "OpenIdConnect", url=cluster.attr_open_id_connect_issuer_url, client_id_list=["sts.amazonaws.com"],
            )  # fmt: skip
            name, security_group_id = cluster.ref, cluster.attr_cluster_security_group_id
            # Split here: no function may take apart what Fn::GetStackOutput brings from another stack.
            host = Fn.select(1, Fn.split(_HTTPS, cluster.attr_open_id_connect_issuer_url))
            output = CfnOutput(self, "OpenIdConnectIssuer", value=host, description="Issuer of service account tokens")
            issuer = Fn.get_stack_output(self.stack_name, output.node.id)
            provider_arn = provider.attr_arn
        else:
            name, security_group_id = existing.name, existing.security_group_id
            issuer, provider_arn = existing.oidc_issuer.removeprefix(_HTTPS), existing.oidc_provider_arn
        arn = f"arn:{self.partition}:eks:{self.region}:{self.account}:cluster/{existing.name if existing else cluster_name}"
        for index, role_arn in enumerate(admin_role_arns):
            administrator(self, f"Administrator{index}", cluster_name=name, role_arn=role_arn)
        kubectl = Kubectl(
            self,
            "Kubectl",
            cluster_name=name,
            cluster_arn=arn,
            cluster_security_group_id=security_group_id,
            vpc=network.vpc,
            subnets=network.control_plane_subnets,
            key=key,
            log_retention=log_retention,
        )
        self.values: Final = EksValues(name, arn, security_group_id, issuer, provider_arn, kubectl)
        if existing is None:
            core = AddOns(self, cluster_name=name, kubernetes_version=kubernetes_version, changes=add_ons)
            core.install("vpc-cni", {"enableNetworkPolicy": "true"} if network_policies else None)
            for add_on in ("kube-proxy", "eks-pod-identity-agent"):
                core.install(add_on)
        self.prerequisites: Final = self._prerequisites(prerequisites)

    def _cluster(
        self,
        name: str,
        version: str,
        api_access: PublicAccess | None,
        network: NetworkValues,
        key: kms.IKey,
        log_retention: logs.RetentionDays,
    ) -> eks.CfnCluster:
        key_arn = key.key_arn
        # EKS makes this group by itself, unencrypted and kept for ever, when it does not exist before the cluster.
        log_group = logs.LogGroup(
            self, "Logs", log_group_name=f"/aws/eks/{name}/cluster", encryption_key=key, retention=log_retention,
            removal_policy=RemovalPolicy.RETAIN,
        )  # fmt: skip
        cluster_role = role(
            self,
            "Role",
            trust=service_trust("eks.amazonaws.com"),
            description="EKS control plane",
            grants={"cluster_secrets": {"key": key_arn}},
            managed={"AmazonEKSClusterPolicy": "EKS asks for this policy by name and extends it with the service"},
        )
        cluster = eks.CfnCluster(
            self,
            "Cluster",
            name=name,
            version=version,
            role_arn=cluster_role.attr_arn,
            # HyperPod refuses CONFIG_MAP. The creator (CloudFormation's role) gets nothing; administrators are named.
            access_config={"authenticationMode": "API_AND_CONFIG_MAP", "bootstrapClusterCreatorAdminPermissions": False},
            # vpc-cni, kube-proxy and coredns come as add-ons with versions; unmanaged copies would conflict with them.
            bootstrap_self_managed_addons=False,
            resources_vpc_config={
                "subnetIds": list(network.control_plane_subnet_ids),
                "securityGroupIds": [network.efa_security_group_id],
                "endpointPrivateAccess": True,
                "endpointPublicAccess": api_access is not None,
                **({"publicAccessCidrs": list(api_access.public_cidrs)} if api_access else {}),
            },
            encryption_config=[{"provider": {"keyArn": key_arn}, "resources": ["secrets"]}],
            logging={"clusterLogging": {"enabledTypes": [{"type": kind} for kind in _LOGS]}},
            # With STANDARD, EKS upgrades the control plane by itself when support ends, perhaps past what HyperPod supports.
            upgrade_policy={"supportType": "EXTENDED"},
            deletion_protection=self.termination_protection,
        )
        cluster.override_logical_id("EksCluster")
        if api_access:
            accept(cluster, {"EKS1": "the environment file names the networks; a check refuses the whole internet"})
        cluster.node.add_dependency(log_group)
        return cluster

    def _prerequisites(self, objects: Sequence[dict[str, Any]]) -> Construct | None:
        """The namespace first, by itself: a new access entry can still be refused once, and one object is cheap to repeat."""
        last: Construct | None = None
        for id_, part in (
            ("HyperPodNamespace", [body for body in objects if body["kind"] == "Namespace"]),
            ("HyperPodPrerequisites", [body for body in objects if body["kind"] != "Namespace"]),
        ):
            if part:
                last = self.values.kubectl.apply(self, id_, part, after=[last] if last else (), retain=True)
        return last
