"""Controllers that endpoints ask for: definitions by digest, charts by version."""

import hashlib
import json
from collections.abc import Mapping, Sequence
from typing import Any, Final

from aws_cdk import CustomResource
from aws_cdk import aws_ec2 as ec2
from aws_cdk import aws_kms as kms
from aws_cdk import aws_logs as logs
from constructs import Construct

from charts.controllers import definers
from dpd.catalog.controllers import Definition, all_controllers
from dpd.environment.names import DEFINER_GROUP
from stacks.constructs import constants
from stacks.constructs.access import member
from stacks.constructs.functions import Place, caller, function, patient_provider
from stacks.constructs.kubectl import Kubectl

_LOOK_SECONDS: Final = 60
_GIVE_UP_SECONDS: Final = 10 * 60
_PROVIDER_MINUTES, _SERVICE_MINUTES = 15, 20
"""The function gives up first, since only it can say what is wrong; then the framework; then CloudFormation."""


class Definitions(Construct):
    """Custom resource definitions, fetched from the internet and applied when they have the digest that they must have."""

    def __init__(
        self,
        scope: Construct,
        id_: str,
        *,
        definitions: Mapping[str, Definition],
        cluster_name: str,
        cluster_arn: str,
        cluster_security_group_id: str,
        vpc: ec2.IVpc,
        subnets: Sequence[ec2.ISubnet],
        kubectl: Kubectl,
        key: kms.IKey,
        log_retention: logs.RetentionDays,
        after: Sequence[Construct],
    ) -> None:
        super().__init__(scope, id_)
        identity = caller(
            self, description="Applies custom resource definitions", cluster_arn=cluster_arn, key=key, log_retention=log_retention
        )
        access = member(self, "Access", cluster_name=cluster_name, role_arn=identity.made.attr_arn, groups=[DEFINER_GROUP])
        rights = kubectl.apply(self, "Rights", definers(tuple(definitions)), after=after)
        security_group = ec2.SecurityGroup.from_security_group_id(self, "ClusterSecurityGroup", cluster_security_group_id, mutable=False)
        place = Place(vpc, subnets, [security_group])
        handlers = {
            name: function(
                self,
                name,
                package="definitions",
                handler=name,
                identity=identity,
                place=place,
                timeout_seconds=_LOOK_SECONDS,
                memory_mib=256,
            )
            for name in ("on_event", "is_complete")
        }
        provider = patient_provider(
            self, "Provider", **handlers, log_group=identity.log_group, look_seconds=_LOOK_SECONDS // 2, total_minutes=_PROVIDER_MINUTES
        )
        self.applied: Final = CustomResource(
            self,
            "Applied",
            service_token=provider.service_token,
            resource_type="Custom::DpdDefinitions",
            service_timeout=constants.seconds(60 * _SERVICE_MINUTES),
            properties={
                "ClusterName": cluster_name,
                "Definitions": {name: {"Url": file.url, "Sha256": file.sha256} for name, file in definitions.items()},
                "TimeoutSeconds": _GIVE_UP_SECONDS,
                "Digest": hashlib.sha256(json.dumps(sorted(definitions)).encode()).hexdigest(),
            },
        )
        self.applied.node.add_dependency(access, rights)


def install_charts(
    scope: Construct, kubectl: Kubectl, names: Sequence[str], values: Mapping[str, Mapping[str, Any]], *, after: Construct
) -> Construct:
    """Install the charts of controllers one after another, the webhooks of one before the pods of the next. Returns the last.

    ``values`` are by release.
    """
    last = after
    for name in names:
        for release, chart in all_controllers()[name].charts.items():
            last = kubectl.install(scope, release, chart, release=release, values=values.get(release, {}), after=[last])
    return last
