"""The outputs that users look for, as CloudFormation outputs of the stacks that own the thing."""

from collections.abc import Sequence
from typing import Final

from aws_cdk import CfnOutput, Stack
from constructs import Construct

from dpd.environment.endpoint import Endpoint
from dpd.environment.names import OPERATOR_NAMESPACE, EndpointNames, LlmdNames
from stacks.values import LustreValues

_API_PATHS: Final = {"chat_completions": "v1/chat/completions", "completions": "v1/completions"}


def kubeconfig(stack: Stack, cluster_name: str) -> None:
    """How to point kubectl at the cluster."""
    command = f"aws eks update-kubeconfig --region {stack.region} --name {cluster_name}"
    CfnOutput(stack, "KubeconfigCommand", value=command, description="Points kubectl at the cluster")


def hyperpod(stack: Stack, cluster_arn: str) -> None:
    """The HyperPod cluster."""
    CfnOutput(stack, "HyperPodClusterArn", value=cluster_arn, description="HyperPod cluster")


def storage(stack: Stack, *, model_bucket_name: str, lustre: LustreValues | None) -> None:
    """Where weights go, and how Lustre is mounted."""
    CfnOutput(stack, "ModelBucketUri", value=f"s3://{model_bucket_name}", description="Model weights go here")
    if lustre:
        CfnOutput(stack, "LustreFileSystemId", value=lustre.file_system_id, description="FSx for Lustre file system")
        CfnOutput(stack, "LustreMountName", value=lustre.mount_name, description="Lustre mount name")
        CfnOutput(stack, "LustreDnsName", value=lustre.dns_name, description="Lustre DNS name")


def endpoints(stack: Stack, served: Sequence[Endpoint]) -> None:
    """How each endpoint is reached.

    The operator's router speaks plain HTTP on port 443: with `https://` a client reports WRONG_VERSION_NUMBER.
    """
    for endpoint in served:
        scope = Construct(stack, f"Outputs-{endpoint.name}")
        if endpoint.backend == "llm-d":
            _llmd(scope, endpoint)
            continue
        names = EndpointNames.of(endpoint)
        url = f"http://{names.routing_host}:443/{_API_PATHS[endpoint.routing.api]}"
        CfnOutput(scope, "Url", value=url, description=f"{endpoint.name}: URL inside the cluster")
        command = (
            f"kubectl get ingress {names.ingress} --namespace {OPERATOR_NAMESPACE} "
            "--output jsonpath='{.status.loadBalancer.ingress[0].hostname}'"
        )
        CfnOutput(scope, "LoadBalancerCommand", value=command, description=f"{endpoint.name}: prints the load balancer's host name")


def _llmd(scope: Construct, endpoint: Endpoint) -> None:
    names = LlmdNames.of(endpoint)
    url = f"http://{names.host}/{_API_PATHS[endpoint.routing.api]}"
    if endpoint.routing.gateway is None:
        CfnOutput(scope, "Url", value=url, description=f"{endpoint.name}: URL inside the cluster")
        return
    command = f"kubectl get gateway {names.gateway} --namespace {endpoint.namespace} --output jsonpath='{{.status.addresses[0].value}}'"
    CfnOutput(scope, "LoadBalancerCommand", value=command, description=f"{endpoint.name}: prints the load balancer's host name")
