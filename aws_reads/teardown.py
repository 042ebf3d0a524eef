"""What a teardown asks: which stacks stand, and what is still in the way of the next one."""

from botocore.exceptions import ClientError

from aws_reads.asking import code, pages
from aws_reads.release import told
from aws_reads.session import Clients
from dpd.promotion.teardown import CLUSTER_TAG


def protection(clients: Clients, stack: str) -> bool | None:
    """Whether a stack refuses to be deleted; ``None``: it does not exist. Raises ``UnreadableError``."""

    def ask() -> bool | None:
        try:
            (found,) = clients("cloudformation").describe_stacks(StackName=stack)["Stacks"]
        except ClientError as error:
            if "does not exist" in error.response.get("Error", {}).get("Message", ""):
                return None
            raise
        return None if found["StackStatus"] == "DELETE_COMPLETE" else bool(found.get("EnableTerminationProtection", False))

    return told(f"the stack {stack}", ask)


def load_balancers(clients: Clients, cluster: str) -> list[str]:
    """ARNs of what the load balancer controller made for a cluster and did not remove yet. Raises ``UnreadableError``."""
    given = {"TagFilters": [{"Key": CLUSTER_TAG, "Values": [cluster]}], "ResourceTypeFilters": ["elasticloadbalancing"]}
    return told(
        "load balancers",
        lambda: sorted(
            each["ResourceARN"] for each in pages(clients("resourcegroupstaggingapi"), "get_resources", "ResourceTagMappingList", **given)
        ),
    )


def endpoint_left(clients: Clients, name: str) -> list[str]:
    """The name of a SageMaker endpoint, when it exists. Raises ``UnreadableError``."""

    def ask() -> list[str]:
        try:
            clients("sagemaker").describe_endpoint(EndpointName=name)
        except ClientError as error:
            if code(error) == "ValidationException" and "Could not find" in error.response["Error"].get("Message", ""):
                return []
            raise
        return [name]

    return told(f"the SageMaker endpoint {name}", ask)


def interfaces(clients: Clients, network_stack: str) -> list[str]:
    """Interfaces in the VPC of a stack that its deletion will not remove, in words. Raises ``UnreadableError``."""

    def ask() -> list[str]:
        made = pages(clients("cloudformation"), "list_stack_resources", "StackResourceSummaries", StackName=network_stack)
        own = {each.get("PhysicalResourceId", "") for each in made}
        vpcs = [each["PhysicalResourceId"] for each in made if each["ResourceType"] == "AWS::EC2::VPC" and each.get("PhysicalResourceId")]
        if not vpcs:
            return []
        found = pages(clients("ec2"), "describe_network_interfaces", "NetworkInterfaces", Filters=[{"Name": "vpc-id", "Values": vpcs}])
        foreign = [each for each in found if not _of_the_stack(each, own)]
        return sorted(f"{each['NetworkInterfaceId']} ({each.get('Description') or each.get('InterfaceType', '')})" for each in foreign)

    return told(f"interfaces in the VPC of {network_stack}", ask)


def _of_the_stack(interface: dict[str, str], own: set[str]) -> bool:
    """NAT gateways, and the endpoints that the stack itself made, go with it."""
    return interface.get("InterfaceType") == "nat_gateway" or interface.get("Description", "").rpartition(" ")[2] in own - {""}
