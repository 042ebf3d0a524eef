"""What runs on the cluster's nodes before any endpoint: DNS, certificates, metrics, storage drivers, the inference operator."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from aws_cdk import Stack
from aws_cdk import aws_kms as kms
from aws_cdk import aws_logs as logs
from constructs import Construct

from dpd.backends.controllers import KEDA, LOAD_BALANCERS, idle_add_ons, needed, sets_of_roles
from dpd.catalog import instances
from dpd.catalog.add_ons import INFERENCE, version_key
from dpd.catalog.controllers import all_controllers
from dpd.environment.cluster import AddOn, InstanceGroup
from dpd.environment.endpoint import Endpoint
from stacks.constructs.add_ons import AddOns
from stacks.constructs.controllers import Definitions, install_charts
from stacks.constructs.node_gate import NodeGate
from stacks.constructs.operator_roles import (
    OF_THE_OPERATOR,
    Identity,
    keda_role,
    load_balancer_role,
    model_reader_role,
    operator_role,
)
from stacks.values import EksValues, NetworkValues, StorageValues

_ENOUGH_NODES: Final = 2
"""System nodes to wait for: DNS and the operator's webhooks run two replicas."""
_FIRST_WITH_GATEWAY: Final = "v2.0.0-eksbuild.2"


@dataclass(frozen=True, slots=True)
class Needs:
    """What the endpoints of an environment need on the cluster, and what they make it reach in AWS."""

    idle_add_ons: frozenset[str] = frozenset()
    """Add-ons of backends that no endpoint has."""
    controllers: tuple[str, ...] = ()
    sets_of_roles: bool = False
    certificate_arns: tuple[str, ...] = ()
    hosted_zone_ids: tuple[str, ...] = ()
    workspace_ids: tuple[str, ...] = ()

    @classmethod
    def of(cls, endpoints: Sequence[Endpoint], changes: Mapping[str, AddOn]) -> "Needs":
        """What these endpoints need, less what the file says that the cluster has."""
        certificates = [endpoint.exposure.certificate for endpoint in endpoints if endpoint.exposure.certificate]
        scaled = [role.autoscaling for endpoint in endpoints for _, role in endpoint.roles if role.autoscaling]
        return cls(
            idle_add_ons=idle_add_ons(endpoints),
            controllers=needed(endpoints, changes),
            sets_of_roles=sets_of_roles(endpoints),
            certificate_arns=_unique(certificate.acm_arn for certificate in certificates),
            hosted_zone_ids=_unique(certificate.hosted_zone_id or "" for certificate in certificates),
            workspace_ids=_unique(url.rpartition("/")[2] for scaling in scaled for url in scaling.workspaces),
        )


def _unique(texts: Any) -> tuple[str, ...]:
    return tuple(sorted({text for text in texts if text}))


class AddOnsStack(Stack):
    """A gate that waits for nodes, then the add-ons that need them, the inference operator, and controllers that endpoints ask for."""

    def __init__(
        self,
        scope: Construct,
        id_: str,
        *,
        operator_role_name: str,
        kubernetes_version: str,
        hyperpod_cluster_arn: str,
        groups: Mapping[str, InstanceGroup],
        add_ons: Mapping[str, AddOn],
        needs: Needs,
        network: NetworkValues,
        storage: StorageValues,
        eks: EksValues,
        log_retention: logs.RetentionDays,
        **stack: Any,
    ) -> None:
        super().__init__(scope, id_, **stack)
        system = _system_groups(groups)
        gate = NodeGate(
            self,
            "NodeGate",
            cluster_name=eks.name,
            cluster_arn=eks.arn,
            cluster_security_group_id=eks.security_group_id,
            vpc=network.vpc,
            subnets=network.control_plane_subnets,
            minimums={name: min(group.count, _ENOUGH_NODES) for name, group in system.items()},
            watched=[[name, group.model_dump(mode="json")] for name, group in groups.items()],
            key=storage.key,
            log_retention=log_retention,
        )
        identity = Identity(eks.oidc_provider_arn, eks.oidc_issuer)
        bucket = storage.model_bucket
        models = model_reader_role(
            self,
            "ModelReader",
            identity=identity,
            bucket_arn=bucket.arn,
            key_arn=bucket.key_arn,
        )
        chain = AddOns(self, cluster_name=eks.name, kubernetes_version=kubernetes_version, changes=add_ons, after=gate)
        chain.install("coredns")
        chain.install("cert-manager")
        chain.install("metrics-server")
        chain.install("aws-mountpoint-s3-csi-driver", role_arn=models.attr_arn)
        # Volumes are static: the driver makes no AWS call for them, so it gets no role.
        chain.install("aws-fsx-csi-driver")
        if INFERENCE not in needs.idle_add_ons:
            self._operator(chain, identity, operator_role_name, hyperpod_cluster_arn, storage.tls_bucket_name, needs)
        if needs.controllers:
            self._controllers(chain.last or gate, identity, network, storage.key, eks, log_retention, needs)

    def _operator(
        self, chain: AddOns, identity: Identity, role_name: str, hyperpod_cluster_arn: str, tls_bucket_name: str, needs: Needs
    ) -> None:
        operator = operator_role(
            self,
            "Operator",
            name=role_name,
            identity=identity,
            certificate_arns=needs.certificate_arns,
            hosted_zone_ids=needs.hosted_zone_ids,
        )
        load_balancers = load_balancer_role(self, "LoadBalancers", identity=identity, service_account=OF_THE_OPERATOR["load_balancers"])
        scaler = keda_role(
            self,
            "Autoscaler",
            identity=identity,
            workspace_ids=needs.workspace_ids,
            service_account=OF_THE_OPERATOR["autoscaler"],
        )
        chain.install(
            INFERENCE,
            {
                "executionRoleArn": operator.attr_arn,
                "hyperpodClusterArn": hyperpod_cluster_arn,
                "tlsCertificateS3Bucket": tls_bucket_name,
                "alb": {"enabled": True, "serviceAccount": {"create": True, "roleArn": load_balancers.attr_arn}},
                "keda": {"enabled": True, "auth": {"aws": {"irsa": {"enabled": True, "roleArn": scaler.attr_arn}}}},
                **_gateway(chain.version(INFERENCE)),
            },
        )

    def _controllers(
        self,
        after: Construct,
        identity: Identity,
        network: NetworkValues,
        key: kms.IKey,
        eks: EksValues,
        log_retention: logs.RetentionDays,
        needs: Needs,
    ) -> None:
        """What the endpoints ask for, behind all add-ons: a chart's pods want DNS, and some want certificates."""
        known = all_controllers()
        files = {name: file for controller in needs.controllers for name, file in known[controller].definitions.items()}
        if files:
            after = Definitions(
                self,
                "Definitions",
                definitions=files,
                cluster_name=eks.name,
                cluster_arn=eks.arn,
                cluster_security_group_id=eks.security_group_id,
                vpc=network.vpc,
                subnets=network.control_plane_subnets,
                kubectl=eks.kubectl,
                key=key,
                log_retention=log_retention,
                after=[after],
            ).applied
        values: dict[str, dict[str, Any]] = {
            "istiod": {"pilot": {"env": {"ENABLE_GATEWAY_API_INFERENCE_EXTENSION": "true"}}},
            "lws": {"enableDisaggregatedSet": needs.sets_of_roles},
        }
        if LOAD_BALANCERS in needs.controllers:
            role = load_balancer_role(self, "LoadBalancers", identity=identity, service_account=known[LOAD_BALANCERS].service_account)
            values[LOAD_BALANCERS] = {
                "clusterName": eks.name,
                "region": self.region,
                "vpcId": network.vpc_id,
                "serviceAccount": {"annotations": {"eks.amazonaws.com/role-arn": role.attr_arn}},
                # Only Services that name it are its own: the webhook that claims all others would stand in the way of every chart.
                "enableServiceMutatorWebhook": False,
            }
        if KEDA in needs.controllers:
            scaler = keda_role(
                self, "Autoscaler", identity=identity, workspace_ids=needs.workspace_ids, service_account=known[KEDA].service_account
            )
            values[KEDA] = {"podIdentity": {"aws": {"irsa": {"enabled": True, "roleArn": scaler.attr_arn}}}}
        install_charts(self, eks.kubectl, needs.controllers, values, after=after)


def _gateway(version: str | None) -> dict[str, Any]:
    """Switch the Inference Gateway off where the add-on has one: it cannot front a disaggregated endpoint, and wants a role."""
    has_it = version is not None and version_key(version) >= version_key(_FIRST_WITH_GATEWAY)
    return {"inferenceGateway": {"enabled": False}} if has_it else {}


def _system_groups(groups: Mapping[str, InstanceGroup]) -> dict[str, InstanceGroup]:
    """The groups that carry system pods: those without GPUs, or all where there is none (the checks say so)."""
    filled = {name: group for name, group in groups.items() if group.count}
    known = {name: instances.find(group.instance_type) for name, group in filled.items()}
    return {name: group for name, group in filled.items() if (instance := known[name]) and not instance.gpus} or filled
