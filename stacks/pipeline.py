"""The release pipeline: one assembly, from the source to production, each stage left only with proof of what it runs."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import aws_cdk as cdk
from aws_cdk import aws_codebuild as codebuild
from aws_cdk import aws_codepipeline as codepipeline
from aws_cdk import aws_iam as iam
from aws_cdk import aws_kms as kms
from aws_cdk import aws_s3 as s3
from aws_cdk import aws_sns as sns
from aws_cdk import aws_sns_subscriptions as subscriptions
from aws_cdk import pipelines
from constructs import IConstruct

from dpd.promotion.settings import Connection, ReleaseStage
from stacks.acknowledgements import accept, wildcard
from stacks.constructs.alarms import from_alarms
from stacks.constructs.encryption_key import EncryptionKey
from stacks.constructs.private_bucket import PrivateBucket
from stacks.constructs.realm import realm_of
from stacks.constructs.stage_conditions import Condition, set_conditions, soak_alarm

RUN: Final = "#{codepipeline.PipelineExecutionId}"
"""CodePipeline fills it in: https://docs.aws.amazon.com/codepipeline/latest/userguide/reference-variables.html"""
SYNTH: Final = "cdk synth --app '.venv/bin/python pipeline.py' --strict --quiet --no-notices"
_PATH: Final = 'export PATH="$PWD/.venv/bin:$PATH"'
_RELEASE: Final = "release"
"""Folder in which a step finds the assembly."""
_STEP_MINUTES: Final = 30
_TEST_MINUTES: Final = 90
_PYTHON: Final = "3.12"
ARTIFACT_DAYS: Final = 90


@dataclass(frozen=True, slots=True)
class Carried:
    """One environment as the pipeline needs it."""

    settings: ReleaseStage
    stage: cdk.Stage
    prefix: str
    account: str
    reader_arn: str
    gate_minutes: int | None
    """Minutes between two runs of its health gate; ``None``: no gate, or no schedule."""

    @property
    def name(self) -> str:
        """The environment's name."""
        return self.settings.environment


class PipelineStack(cdk.Stack):
    """Source, synthesis and tests; then for each environment: look, review and approve; deploy and soak; prove and record.

    Looking and approving have stages of their own: a stage that fails may be rolled back, and a rejected approval must not
    deploy anything.
    """

    def __init__(
        self,
        scope: cdk.App,
        id_: str,
        *,
        app_name: str,
        source: Connection,
        steps_role_name: str,
        carried: Sequence[Carried],
        shares_metrics: bool,
        notify: Sequence[str],
        cli_version: str,
        **stack: Any,
    ) -> None:
        """``cli_version`` is that of the CDK command line in the lock file: what made the assembly deploys it."""
        super().__init__(scope, id_, **stack)
        realm = realm_of(self)
        place = f"{realm.account}-{realm.region}"
        key = EncryptionKey(
            self,
            "Key",
            alias=f"alias/{app_name}-release",
            description=f"{app_name}: reviews, releases and messages of the pipeline",
            log_groups=f"{app_name}-release*",
            alarms=f"{app_name}-*",
        )
        self._key: Final = kms.Key.from_key_arn(self, "ImportedKey", key.arn)
        reviews = f"{app_name}-release-reviews-{place}"
        logs = PrivateBucket(self, "LogBucket", name=f"{app_name}-release-logs-{place}", key_arn=None, logs_of=[reviews])
        self._reviews: Final = PrivateBucket(self, "ReviewBucket", name=reviews, key_arn=key.arn, log_bucket=logs)
        self._topic: Final = self._told(app_name, notify)
        self._name: Final = f"{app_name}-release"
        self._steps_role: Final = self._steps(steps_role_name, key.arn, [each.reader_arn for each in carried])
        self._source: Final = pipelines.CodePipelineSource.connection(
            source.repository, source.branch, connection_arn=source.connection_arn
        )
        synth = pipelines.CodeBuildStep(
            "Synth",
            input=self._source,
            install_commands=["make setup"],
            commands=[_PATH, "make test", "dpd check", SYNTH],
            primary_output_directory="cdk.out",
            timeout=cdk.Duration.minutes(_TEST_MINUTES),
        )
        assert synth.primary_output is not None
        self._release: Final = synth.primary_output
        made = pipelines.CodePipeline(
            self,
            "Pipeline",
            pipeline_name=f"{app_name}-release",
            synth=synth,
            pipeline_type=codepipeline.PipelineType.V2,
            # A release that waits for approval must not be overtaken by one that nobody approved.
            execution_mode=codepipeline.ExecutionMode.QUEUED,
            cross_account_keys=True,
            enable_key_rotation=True,
            cli_version=cli_version,
            publish_assets_in_parallel=False,
            code_build_defaults=pipelines.CodeBuildOptions(
                build_environment=codebuild.BuildEnvironment(
                    build_image=codebuild.LinuxBuildImage.STANDARD_7_0, compute_type=codebuild.ComputeType.MEDIUM
                ),
                partial_build_spec=codebuild.BuildSpec.from_object({"phases": {"install": {"runtime-versions": {"python": _PYTHON}}}}),
            ),
        )
        for index, each in enumerate(carried):
            made.add_wave(f"Enter-{each.name}", pre=self._entering(each))
            made.add_stage(each.stage)
            made.add_wave(f"Leave-{each.name}", pre=self._leaving(each, carried[index + 1] if index + 1 < len(carried) else None))
        made.build_pipeline()
        set_conditions(made.pipeline, {each.name: self._condition(each, app_name, shared=shares_metrics) for each in carried})
        self._take_artifacts(made.pipeline.artifact_bucket)
        _accept(made)

    def _told(self, app_name: str, emails: Sequence[str]) -> sns.Topic:
        """Who hears of approvals and alarms."""
        topic = sns.Topic(self, "Told", master_key=self._key, enforce_ssl=True)
        topic.add_to_resource_policy(
            iam.PolicyStatement(
                sid="Alarms",
                principals=[iam.ServicePrincipal("cloudwatch.amazonaws.com")],
                actions=["sns:Publish"],
                resources=[topic.topic_arn],
                conditions=from_alarms(realm_of(self), f"{app_name}-*"),
            )
        )
        for email in emails:
            topic.add_subscription(subscriptions.EmailSubscription(email))
        return topic

    def _steps(self, name: str, key_arn: str, readers: Sequence[str]) -> iam.Role:
        """Who the steps are: they look into the environments, and write reviews and releases."""
        made = iam.Role(
            self,
            "Steps",
            role_name=name,
            assumed_by=iam.ServicePrincipal("codebuild.amazonaws.com"),
            description="Steps of the release pipeline that look, review and record",
        )
        realm, bucket = realm_of(self), self._reviews.arn
        written = [f"{bucket}/{folder}/*" for folder in ("released", "reviews", "runs")]
        logs = f"arn:{realm.partition}:logs:{realm.region}:{realm.account}:log-group:/aws/codebuild/{self._name}-*"
        for sid, actions, resources in (
            ("Readers", ["sts:AssumeRole"], list(readers)),
            ("Find", ["s3:ListBucket"], [bucket]),
            ("Before", ["s3:GetObject"], [f"{bucket}/released/*"]),
            ("Write", ["s3:PutObject"], written),
            ("Key", ["kms:Decrypt", "kms:GenerateDataKey"], [key_arn]),
            ("Logs", ["logs:CreateLogGroup", "logs:CreateLogStream", "logs:PutLogEvents"], [logs]),
        ):
            made.add_to_policy(iam.PolicyStatement(sid=sid, actions=actions, resources=resources))
        named = "objects are named by stage and by run of the pipeline, in these folders of its own bucket alone"
        accept(made, {**{wildcard(each): named for each in written}, wildcard(logs): "log groups of this pipeline's own steps"})
        return made

    def _take_artifacts(self, bucket: s3.IBucket) -> None:
        """The steps read what the pipeline hands them; artifacts go when nobody can roll back to them any more."""
        key, resource = bucket.encryption_key, bucket.node.default_child
        assert key is not None
        assert isinstance(resource, cdk.CfnResource)
        objects = bucket.arn_for_objects("*")
        self._steps_role.add_to_policy(
            iam.PolicyStatement(sid="Artifacts", actions=["s3:GetObject", "s3:GetObjectVersion"], resources=[objects])
        )
        self._steps_role.add_to_policy(iam.PolicyStatement(sid="ArtifactKey", actions=["kms:Decrypt"], resources=[key.key_arn]))
        (arn,) = cdk.Stack.of(self).resolve(objects)["Fn::Join"][1][:1]
        accept(
            self._steps_role, {wildcard(f"<{arn['Fn::GetAtt'][0]}.Arn>/*"): "artifacts have random names; the pipeline's own bucket alone"}
        )
        rule = {"Id": "OldArtifacts", "Status": "Enabled", "ExpirationInDays": ARTIFACT_DAYS}
        resource.add_property_override("LifecycleConfiguration.Rules", [rule])

    def _entering(self, each: Carried) -> list[pipelines.Step]:
        """Look at the account, review, and ask somebody where that is wanted."""
        review = self._step(
            f"Review-{each.name}",
            ".ci/review",
            env={"STAGE": each.name, "ALLOW_REPLACE": each.settings.allow_replace or ""},
        )
        looking = self._step(f"Preflight-{each.name}", f"dpd preflight -e {each.name} --role-arn {each.reader_arn}")
        if not each.settings.approval:
            return [looking, review]
        realm = realm_of(self)
        page = f"https://{realm.region}.console.aws.amazon.com/s3/object/{self._reviews.name}"
        approval = pipelines.ManualApprovalStep(
            f"Approve-{each.name}",
            comment=f"Release to {each.name}: open the page, and choose Open",
            review_url=f"{page}?region={realm.region}&prefix=reviews/{RUN}/{each.name}.html",
            notification_topic=self._topic,
        )
        approval.add_step_dependency(looking)
        approval.add_step_dependency(review)
        return [looking, review, approval]

    def _leaving(self, each: Carried, following: Carried | None) -> list[pipelines.Step]:
        """Prove that the next environment gets what passed here, and keep what runs here now."""
        record = self._step(f"Record-{each.name}", ".ci/record", env={"STAGE": each.name})
        if following is None:
            return [record]
        soak = each.settings.soak_minutes
        prove = self._step(
            f"Prove-{each.name}",
            f"dpd promote --from {each.name} --to {following.name} --assembly ../{_RELEASE} "
            f"--watch-minutes {soak} --role-arn {each.reader_arn}",
            minutes=soak + _STEP_MINUTES,
        )
        return [prove, record]

    def _step(
        self, name: str, command: str, *, env: Mapping[str, str] | None = None, minutes: int = _STEP_MINUTES
    ) -> pipelines.CodeBuildStep:
        return pipelines.CodeBuildStep(
            name,
            input=self._source,
            additional_inputs={f"../{_RELEASE}": self._release},
            install_commands=["make setup"],
            commands=[_PATH, command],
            env={"RELEASE": f"../{_RELEASE}", "REVIEWS": self._reviews.name, "RUN": RUN, **(env or {})},
            # As it is: CDK would add wildcards, and one statement for each step.
            role=self._steps_role.without_policy_updates(),
            project_name=f"{self._name}-{name}",
            timeout=cdk.Duration.minutes(minutes),
        )

    def _condition(self, each: Carried, app_name: str, *, shared: bool) -> Condition:
        seen = shared or each.account == realm_of(self).account
        if not (each.settings.soak_minutes and each.gate_minutes and seen):
            return Condition(rolls_back=each.settings.on_failure == "rollback")
        alarm = soak_alarm(
            self,
            f"Soak-{each.name}",
            name=f"{app_name}-soak-{each.name}",
            environment=each.prefix,
            account=each.account,
            period_minutes=2 * each.gate_minutes,
            topic_arn=self._topic.topic_arn,
        )
        return Condition(each.settings.on_failure == "rollback", alarm, each.settings.soak_minutes)


_GRANTS: Final = ("s3:Abort*", "s3:DeleteObject*", "s3:GetBucket*", "s3:GetObject*", "s3:List*", "kms:GenerateDataKey*", "kms:ReEncrypt*")
"""Actions with wildcards in what CDK grants on a bucket and its key."""


def _accept(made: pipelines.CodePipeline) -> None:
    """Accept what CDK Pipelines writes by itself, and nothing that it may write one day."""
    stack, realm = cdk.Stack.of(made), realm_of(made)
    bucket = _logical_id(stack, made.pipeline.artifact_bucket)
    projects = [f"<{_logical_id(stack, project)}>" for project in (made.synth_project, made.self_mutation_project)]
    logs = f"arn:{realm.partition}:logs:{realm.region}:{realm.account}:log-group:/aws/codebuild/"
    reports = f"arn:{realm.partition}:codebuild:{realm.region}:{realm.account}:report-group/"
    grant = "CDK's grant on the pipeline's own bucket and its key, which hold nothing but artifacts"
    own = "CDK's grant to a project on its own logs and reports"
    bootstrap = "CDK's publishing takes roles that carry the tag of CDK's bootstrap alone; describing stacks knows no resource"
    accept(
        made,
        {
            **{f"IAM5[Action::{action}]": grant for action in _GRANTS},
            wildcard(f"<{bucket}.Arn>/*"): grant,
            **{wildcard(f"{logs}{name}"): own for name in (*(f"{project}:*" for project in projects), "*")},
            **{wildcard(f"{reports}{name}"): own for name in (*(f"{project}-*" for project in projects), "*")},
            wildcard("*"): bootstrap,
            wildcard(f"arn:*:iam::{realm.account}:role/*"): bootstrap,
            "S1": "artifacts are copies of a commit and of its assembly, encrypted with the pipeline's key, and go after a while",
        },
    )


def _logical_id(stack: cdk.Stack, construct: IConstruct) -> str:
    resource = construct.node.default_child
    assert isinstance(resource, cdk.CfnElement)
    return str(stack.resolve(stack.get_logical_id(resource)))
