"""The health gate in a stack of its own: a deployment succeeds only if KV crossed EFA, prefill was used and the answers are right."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Final

from aws_cdk import CfnOutput, Stack
from aws_cdk import aws_ec2 as ec2
from aws_cdk import aws_logs as logs
from aws_cdk.aws_s3_assets import Asset
from constructs import Construct

from charts.manifest import Manifest
from dpd.backends.site import LUSTRE_FILE_SYSTEM_ID
from dpd.environment.names import GATE_READER_GROUP
from dpd.gate.spec import EFA_SECURITY_GROUP_ID, KEY_ARN, METRIC_NAMESPACE, TOPIC_ARN, named_values, text, worker_ports
from stacks.constructs.access import member
from stacks.constructs.alarms import AlarmTopic, failure_alarm
from stacks.constructs.functions import Place, caller
from stacks.constructs.health_gate import HealthGate
from stacks.constructs.reader_group import reader_group
from stacks.values import EksValues, NetworkValues, StorageValues

_HOUR: Final = 60


class GateStack(Stack):
    """The gate with its rights on the cluster and in AWS, its schedule, and an alarm for what it finds."""

    def __init__(
        self,
        scope: Construct,
        id_: str,
        *,
        spec: Mapping[str, Any],
        digest: str,
        readers: Sequence[Manifest],
        alarms: str,
        schedule_minutes: int | None,
        notify: Sequence[str],
        hyperpod_cluster_arn: str,
        network: NetworkValues,
        storage: StorageValues,
        eks: EksValues,
        log_retention: logs.RetentionDays,
        **stack: Any,
    ) -> None:
        """``spec`` has placeholders; ``readers`` are the objects that let the gate's group read; ``alarms`` is a pattern of names."""
        super().__init__(scope, id_, **stack)
        topic = AlarmTopic(self, "Failures", key=storage.key, alarms=alarms, emails=notify)
        stored = self._stored(text(spec))
        identity = caller(
            self,
            description="Proves the environment",
            cluster_arn=eks.arn,
            key=storage.key,
            log_retention=log_retention,
            grants=self._grants(spec, stored, hyperpod_cluster_arn, topic.arn, storage),
        )
        access = member(self, "Access", cluster_name=eks.name, role_arn=identity.made.attr_arn, groups=[GATE_READER_GROUP])
        made, rules = reader_group(self, who="Health gate", network=network, eks=eks, ports=worker_ports(spec))
        group = ec2.SecurityGroup.from_security_group_id(self, "Group", made.attr_group_id, mutable=False)
        gate = HealthGate(
            self,
            "HealthGate",
            spec_uri=stored.s3_object_url,
            values=named_values(spec, self._values(network, storage, topic.arn)),
            digest=digest,
            identity=identity,
            place=Place(network.vpc, network.control_plane_subnets, [group]),
            schedule_minutes=schedule_minutes,
            after=[access, *rules, eks.kubectl.apply(self, "Readers", [manifest.body for manifest in readers])],
        )
        alarm = failure_alarm(
            self,
            "Failed",
            namespace=METRIC_NAMESPACE,
            metric="GateFailed",
            environment=spec["environment"],
            topic_arn=topic.arn,
            # Two runs: one that is late must not look like one that never came.
            period_minutes=2 * schedule_minutes if schedule_minutes else _HOUR,
            missing_is_failure=schedule_minutes is not None,
            description="The health gate did not pass, or nobody knows because it did not run",
        )
        # By then the first measurement is there, so that a new alarm does not miss it.
        alarm.node.add_dependency(gate)
        reports = f"s3://{spec['reports']['bucket']}/{spec['reports']['prefix']}/{spec['environment']}/"
        CfnOutput(self, "HealthGateReports", value=reports, description="Full reports of the health gate, by day")
        CfnOutput(self, "HealthGateTopicArn", value=topic.arn, description="Failures are published here")

    def _values(self, network: NetworkValues, storage: StorageValues, topic_arn: str) -> dict[str, str]:
        known = {EFA_SECURITY_GROUP_ID: network.efa_security_group_id, KEY_ARN: storage.key_arn, TOPIC_ARN: topic_arn}
        return {**known, **({LUSTRE_FILE_SYSTEM_ID: storage.lustre.file_system_id} if storage.lustre else {})}

    def _stored(self, content: str) -> Asset:
        """The spec as an object in S3, under a name that changes with its content."""
        with TemporaryDirectory() as folder:
            file = Path(folder, "spec.json")
            file.write_text(content, encoding="utf-8")
            return Asset(self, "Spec", path=str(file))

    def _grants(
        self, spec: Mapping[str, Any], stored: Asset, hyperpod_cluster_arn: str, topic_arn: str, storage: StorageValues
    ) -> dict[str, Any]:
        """The policies of the catalog that this spec needs, each with its resources."""
        place = f"{self.region}:{self.account}"
        reports = spec["reports"]
        endpoints = [name for endpoint in spec["endpoints"] if (name := endpoint["sagemaker_endpoint"])]
        return {
            "health_gate": {
                "hyperpod_cluster": hyperpod_cluster_arn,
                "eks_cluster": spec["eks_cluster"],
                "topic": topic_arn,
                "reports": f"arn:{self.partition}:s3:::{reports['bucket']}/{reports['prefix']}/{spec['environment']}",
                "key": storage.key_arn,
                "stack": self.stack_name,
                "spec": f"arn:{self.partition}:s3:::{stored.s3_bucket_name}/{stored.s3_object_key}",
            },
            **_if("roles", [f"arn:{self.partition}:iam::{self.account}:role/{role['name']}" for role in spec["roles"]]),
            **_if("weights", sorted({f"arn:{self.partition}:s3:::{weights['bucket']}" for weights in spec["weights"]}), "buckets"),
            **({"health_gate_lustre": {}} if spec["lustre"] else {}),
            # SageMaker writes the name in the ARN of an endpoint in lower case.
            **_if("endpoints", [f"arn:{self.partition}:sagemaker:{place}:endpoint/{name.lower()}" for name in endpoints]),
        }


def _if(part: str, resources: list[str], name: str = "") -> dict[str, Any]:
    return {f"health_gate_{part}": {name or part: resources}} if resources else {}
