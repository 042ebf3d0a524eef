"""Resources that hold state."""

from typing import TypeVar

from aws_cdk import CfnResource, RemovalPolicy

Resource = TypeVar("Resource", bound=CfnResource)


def retained(resource: Resource, logical_id: str) -> Resource:
    """Keep a resource when it leaves the template or is replaced, and pin its logical id.

    Only a creation that fails takes it back (`RetainExceptOnCreate`): empty buckets left behind would hold the names that
    the next attempt needs.

    CloudFormation knows a resource by its logical id alone, and CDK derives that from the construct's path: moving a
    construct in the code would make a second, empty bucket or file system beside the one with the data.
    """
    resource.apply_removal_policy(RemovalPolicy.RETAIN_ON_UPDATE_OR_DELETE)
    resource.override_logical_id(logical_id)
    return resource
