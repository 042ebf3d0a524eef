"""Metrics, rules and alarms of an environment, by the path that its file names, and the CloudWatch dashboard."""

import base64
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from aws_cdk import CfnOutput, Fn, Stack
from aws_cdk import aws_aps as aps
from aws_cdk import aws_cloudwatch as cloudwatch
from aws_cdk import aws_eks as cfn_eks
from aws_cdk import aws_logs as logs
from constructs import Construct

from charts.manifest import Manifest
from dpd.backends.site import LUSTRE_FILE_SYSTEM_ID
from dpd.catalog import observability
from dpd.environment.environment import Environment
from dpd.environment.observe import Observe
from dpd.observe import cloudwatch as pictures
from dpd.observe import rules
from dpd.observe.targets import scrape_configuration, targets
from dpd.observe.watched import watched
from stacks.constructs.alarms import AlarmTopic
from stacks.constructs.reader_group import reader_group
from stacks.constructs.retained import retained
from stacks.constructs.roles import POD_IDENTITY, role
from stacks.values import EksValues, NetworkValues, StorageValues


@dataclass(frozen=True, slots=True)
class Watching:
    """What is watched, as texts that the stack passes on: rules by a name of their own, the collector's jobs, a dashboard's body."""

    rules: Mapping[str, str]
    scrape: str
    ports: tuple[int, ...]
    dashboard: str
    sagemaker_endpoints: tuple[str, ...]

    @classmethod
    def of(cls, environment: Environment) -> "Watching":
        """What is watched of an environment."""
        endpoints, observe = watched(environment), environment.observe
        managed = observe.metrics in ("hyperpod_add_on", "managed_prometheus")
        return cls(
            rules={f"{it.namespace}.{it.name}": rules.compact(it) for it in endpoints},
            scrape=scrape_configuration(
                interval_seconds=observe.scrape_interval_seconds, cluster_exporters=observe.metrics == "managed_prometheus"
            ),
            ports=tuple(sorted({port for target in targets(environment, endpoints) for port in target.ports})),
            dashboard=pictures.text(environment, endpoints, workspace=managed),
            sagemaker_endpoints=tuple(it.sagemaker_endpoint for it in endpoints if it.sagemaker_endpoint),
        )


_CLUSTER_EXPORTERS: Final = (8080, 9400)
_FIVE_MINUTES: Final = 300


class ObserveStack(Stack):
    """A Prometheus workspace with rules, a collector and an alert manager, or monitors on the cluster; alarms of AWS parts beside."""

    def __init__(
        self,
        scope: Construct,
        id_: str,
        *,
        observe: Observe,
        watching: Watching,
        monitors: Sequence[Manifest],
        alarms: str,
        network: NetworkValues,
        storage: StorageValues,
        eks: EksValues,
        log_retention: logs.RetentionDays,
        **stack: Any,
    ) -> None:
        """``alarms`` is a pattern of alarm names; ``monitors`` are the objects of the Prometheus operator, when that is the path."""
        super().__init__(scope, id_, **stack)
        # A topic of its own: the gate's may be off, and whoever operates endpoints is not whoever deploys them.
        topic = AlarmTopic(self, "Alarms", key=storage.key, alarms=alarms, emails=observe.notify, workspaces=True)
        known: dict[str, str] = {LUSTRE_FILE_SYSTEM_ID: storage.lustre.file_system_id} if storage.lustre else {}
        if monitors:
            eks.kubectl.apply(self, "Monitors", [manifest.body for manifest in monitors])
        if observe.metrics in ("hyperpod_add_on", "managed_prometheus"):
            arn, workspace_id = self._workspace(observe, topic.arn, storage, log_retention)
            known[pictures.WORKSPACE_ID] = workspace_id
            for name, data in watching.rules.items():
                aps.CfnRuleGroupsNamespace(self, f"Rules-{name}", name=name, workspace=arn, data=data)
            if observe.metrics == "hyperpod_add_on":
                self._add_on(observe, arn, workspace_id, eks)
            self._collector(watching, arn, network, eks, cluster_exporters=observe.metrics == "managed_prometheus")
            CfnOutput(self, "PrometheusWorkspaceArn", value=arn, description="Amazon Managed Prometheus workspace with all metrics")
        cloudwatch.CfnDashboard(self, "Dashboard", dashboard_name=self.stack_name, dashboard_body=_filled(watching.dashboard, known))
        self._alarms(watching, topic.arn)

    def _workspace(self, observe: Observe, topic_arn: str, storage: StorageValues, log_retention: logs.RetentionDays) -> tuple[str, str]:
        """ARN and id. One that is made is encrypted with the environment's key, writes its own errors to a log and outlives the stack."""
        if observe.workspace:
            return observe.workspace, observe.workspace.rpartition("/")[2]
        facts = observability.managed_prometheus()
        log = logs.CfnLogGroup(
            self,
            "WorkspaceLog",
            log_group_name=f"{facts['log_group_prefix']}prometheus/{self.stack_name}",
            kms_key_id=storage.key_arn,
            retention_in_days=int(log_retention.value) if isinstance(log_retention.value, int) else 90,
        )
        made = aps.CfnWorkspace(
            self,
            "Workspace",
            alias=self.stack_name,
            kms_key_arn=storage.key_arn,
            logging_configuration={"logGroupArn": log.attr_arn},
            alert_manager_definition=_alert_manager(topic_arn, self.region),
            workspace_configuration={"retentionPeriodInDays": observe.retention_days or int(facts["retention_days"])},
        )
        retained(made, "Workspace")
        return made.attr_arn, made.attr_workspace_id

    def _add_on(self, observe: Observe, workspace_arn: str, workspace_id: str, eks: EksValues) -> None:
        """HyperPod's add-on with a role that may write into this workspace and do nothing else."""
        facts = observability.add_on()
        trust = {
            "Version": "2012-10-17",
            "Statement": [
                {
                    "Effect": "Allow",
                    "Principal": {"Service": POD_IDENTITY},
                    "Action": ["sts:AssumeRole", "sts:TagSession"],
                    "Condition": {"StringEquals": {"aws:SourceAccount": self.account}, "ArnEquals": {"aws:SourceArn": eks.arn}},
                }
            ],
        }
        writer = role(
            self,
            "Writer",
            trust=trust,
            description="HyperPod's observability add-on: writes metrics",
            grants={"remote_write": {"workspace": workspace_arn}},
        )
        levels = {
            provider: {"level": level, "scrapeInterval": observe.scrape_interval_seconds} for provider, level in facts["levels"].items()
        }
        endpoint = f"https://aps-workspaces.{self.region}.amazonaws.com/workspaces/{workspace_id}/"
        cfn_eks.CfnAddon(
            self,
            "AddOn",
            addon_name=facts["name"],
            addon_version=observe.add_on_version,
            cluster_name=eks.name,
            configuration_values=Stack.of(self).to_json_string(
                {
                    "ampWorkspace": {"prometheusEndpoint": endpoint, "arn": workspace_arn},
                    "metricsProvider": levels,
                    "logging": {"enabled": False},
                }
            ),
            resolve_conflicts="OVERWRITE",
            pod_identity_associations=[{"serviceAccount": facts["service_account"], "roleArn": writer.attr_arn}],
            # The add-on's own administration looks for this tag.
            tags=[{"key": "SageMaker", "value": "true"}],
        )

    def _collector(
        self, watching: Watching, workspace_arn: str, network: NetworkValues, eks: EksValues, *, cluster_exporters: bool
    ) -> None:
        ports = sorted({*watching.ports, *(_CLUSTER_EXPORTERS if cluster_exporters else ())})
        group, into = reader_group(self, who="Metrics collector", network=network, eks=eks, ports=ports)
        collector = aps.CfnScraper(
            self,
            "Collector",
            alias=self.stack_name,
            destination={"ampConfiguration": {"workspaceArn": workspace_arn}},
            scrape_configuration={"configurationBlob": base64.b64encode(watching.scrape.encode()).decode()},
            source={
                "eksConfiguration": {
                    "clusterArn": eks.arn,
                    "subnetIds": list(network.control_plane_subnet_ids),
                    "securityGroupIds": [group.attr_group_id],
                }
            },
        )
        for rule in into:
            collector.add_resource_dependency(rule)

    def _alarms(self, watching: Watching, topic_arn: str) -> None:
        """What no Prometheus sees: errors of SageMaker endpoints."""
        for name in watching.sagemaker_endpoints:
            cloudwatch.CfnAlarm(
                self,
                f"Errors-{name}",
                alarm_description=f"The SageMaker endpoint {name} answers with errors of its own",
                namespace="AWS/SageMaker",
                metric_name="Invocation5XXErrors",
                dimensions=[{"name": "EndpointName", "value": name}, {"name": "VariantName", "value": "AllTraffic"}],
                statistic="Sum",
                period=_FIVE_MINUTES,
                evaluation_periods=2,
                threshold=0,
                comparison_operator="GreaterThanThreshold",
                treat_missing_data="notBreaching",
                alarm_actions=[topic_arn],
                ok_actions=[topic_arn],
            )


def _alert_manager(topic_arn: str, region: str) -> str:
    """Everything to the topic, grouped by endpoint: one cause rings once. A critical alarm silences the warnings of its endpoint."""
    receiver = {"topic_arn": topic_arn, "sigv4": {"region": region}, "subject": "HyperPod DPD alarm"}
    config = {
        "route": {
            "receiver": "topic",
            "group_by": ["environment", "endpoint"],
            "group_wait": "30s",
            "group_interval": "5m",
            "repeat_interval": "4h",
        },
        "inhibit_rules": [
            {
                "source_matchers": ['severity="critical"'],
                "target_matchers": ['severity="warning"'],
                "equal": ["environment", "namespace", "endpoint"],
            }
        ],
        "receivers": [{"name": "topic", "sns_configs": [receiver]}],
    }
    return "alertmanager_config: |\n  " + json.dumps(config)


def _filled(body: str, known: Mapping[str, str]) -> str:
    """A text with references in the place of marks."""
    present = {mark: value for mark, value in known.items() if mark in body}
    return Fn.sub(body, {mark[2:-1]: value for mark, value in present.items()}) if present else body
