"""kubectl inside CloudFormation: how manifests reach a cluster whose API is private."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final

from aws_cdk import CfnResource, RemovalPolicy
from aws_cdk import aws_ec2 as ec2
from aws_cdk import aws_eks_v2 as eks
from aws_cdk import aws_kms as kms
from aws_cdk import aws_logs as logs
from aws_cdk.lambda_layer_kubectl_v34 import KubectlV34Layer
from constructs import Construct, IConstruct

from dpd.catalog.controllers import Chart
from stacks.acknowledgements import accept, accept_provider
from stacks.constructs.access import administrator
from stacks.constructs.constants import seconds
from stacks.constructs.functions import caller

_CHART_TIMEOUT_SECONDS: Final = 10 * 60
"""Less than the 15 minutes that CDK gives its handler, so that Helm says what is not ready."""
_SERVICE_TIMEOUT_SECONDS: Final = 20 * 60
"""Longer than the 15 minutes that CDK gives its handler, so that the handler's own error is what a user reads."""


class Kubectl(Construct):
    """Applies manifests with a Lambda function in the VPC, inside the cluster's own security group.

    An imported cluster gets neither the access entry nor the ordering that CDK's own cluster has, so both are made here.
    Creating ClusterRoles needs every right that they grant, hence the administrator policy.
    """

    def __init__(
        self,
        scope: Construct,
        id_: str,
        *,
        cluster_name: str,
        cluster_arn: str,
        cluster_security_group_id: str,
        vpc: ec2.IVpc,
        subnets: Sequence[ec2.ISubnet],
        key: kms.IKey,
        log_retention: logs.RetentionDays,
    ) -> None:
        super().__init__(scope, id_)
        identity = caller(self, description="Applies Kubernetes manifests", cluster_arn=cluster_arn, key=key, log_retention=log_retention)
        security_group = ec2.SecurityGroup.from_security_group_id(self, "ClusterSecurityGroup", cluster_security_group_id, mutable=False)
        # The provider wants a cluster and the cluster wants a provider: the first import only breaks that circle.
        bare = eks.Cluster.from_cluster_attributes(self, "Bare", cluster_name=cluster_name, vpc=vpc)
        provider = eks.KubectlProvider(
            self,
            "Provider",
            cluster=bare,
            kubectl_layer=KubectlV34Layer(self, "Layer"),
            private_subnets=list(subnets),
            security_groups=[security_group],
            role=identity.role,
        )
        kubectl = provider.node.find_child("Handler")
        framework = provider.node.find_child("Provider")
        for function in (kubectl, framework.node.find_child("framework-onEvent")):
            _log_into(identity.log_group, function)
        accept(kubectl, {"L1": "CDK writes the handler and chooses the Python that it is tested with"})
        accept_provider(framework, kubectl)
        # Guards a policy of Amazon ECR Public that the fixed role does not take: nothing is left to use the condition.
        self.node.try_remove_child("HasEcrPublic")
        self._ready: Construct = administrator(self, "Access", cluster_name=cluster_name, role_arn=identity.made.attr_arn)
        self._cluster = eks.Cluster.from_cluster_attributes(
            self, "Cluster", cluster_name=cluster_name, vpc=vpc, kubectl_provider=provider, prune=False
        )

    def apply(
        self, scope: Construct, id_: str, objects: Sequence[dict[str, Any]], *, after: Iterable[Construct] = (), retain: bool = False
    ) -> eks.KubernetesManifest:
        """Apply objects with kubectl's strict validation, so that a field the cluster does not know is an error and not dropped.

        Never prunes: pruning deletes a namespace with all that is in it, and leaves ClusterRoles behind. With ``retain``
        the objects stay when the stack goes.
        """
        manifest = eks.KubernetesManifest(
            scope,
            id_,
            cluster=self._cluster,
            manifest=list(objects),
            overwrite=True,
            prune=False,
            skip_validation=False,
            removal_policy=RemovalPolicy.RETAIN if retain else None,
        )
        self._bounded(manifest, after)
        return manifest

    def install(
        self, scope: Construct, id_: str, chart: Chart, *, release: str, values: Mapping[str, Any], after: Iterable[Construct] = ()
    ) -> eks.HelmChart:
        """Install a Helm chart, and wait until what it starts is ready. ``release`` is its name on the cluster."""
        made = eks.HelmChart(
            scope,
            id_,
            cluster=self._cluster,
            chart=chart.chart,
            repository=chart.repository,
            version=chart.version,
            release=release,
            namespace=chart.namespace,
            create_namespace=True,
            values=dict(values),
            wait=True,
            timeout=seconds(_CHART_TIMEOUT_SECONDS),
        )
        self._bounded(made, after)
        return made

    def _bounded(self, made: Construct, after: Iterable[Construct]) -> None:
        node = made.node
        (resource,) = (child for child in node.find_all() if isinstance(child, CfnResource))
        # Without it CloudFormation waits an hour for a function that died without an answer.
        resource.add_property_override("ServiceTimeout", _SERVICE_TIMEOUT_SECONDS)
        node.add_dependency(self._ready, *after)


def _log_into(log_group: logs.ILogGroup, function: IConstruct) -> None:
    """Take away the log group that CDK gives a function (not encrypted with our key, kept for two years), and name ours."""
    node = function.node
    node.try_remove_child("LogGroup")
    resource = node.default_child
    assert isinstance(resource, CfnResource)
    resource.add_property_override("LoggingConfig.LogGroup", log_group.log_group_name)
