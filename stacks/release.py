"""What carries a release, from the release file: the pipeline with its access to each account, and the roles of GitHub Actions."""

from collections.abc import Sequence
from typing import Any

import aws_cdk as cdk

from dpd.catalog import regions
from dpd.environment.environment import Environment
from dpd.environment.names import STORAGE, Names
from dpd.environment.storage import ExistingKey
from dpd.promotion.settings import CodePipelineRelease, ReleaseSettings
from stacks.constructs.release_rights import DEFAULT_QUALIFIER, Seen
from stacks.github_roles import GitHubRolesStack
from stacks.pipeline import Carried, PipelineStack
from stacks.pipeline_access import PipelineAccessStack
from stacks.stage import EnvironmentStage


def release_stacks(app: cdk.App, settings: ReleaseSettings, stages: Sequence[EnvironmentStage], *, cli_version: str) -> None:
    """Make the stacks of a release file. Every stage of it must be among ``stages``."""
    by_name = {stage.environment.name: stage for stage in stages}
    chosen = [by_name[each.environment] for each in settings.stages]
    if settings.github:
        for stage in chosen:
            _github(app, settings, stage.environment)
    if settings.codepipeline:
        _pipeline(app, settings, settings.codepipeline, chosen, cli_version)
        for stage in chosen:
            _access(app, settings, settings.codepipeline, stage.environment)


def _github(app: cdk.App, settings: ReleaseSettings, environment: Environment) -> None:
    github, names = settings.github, Names.of(environment)
    assert github is not None
    GitHubRolesStack(
        app,
        f"github-{environment.name}",
        role_name=names.release_deployer,
        github_environment=environment.name,
        repository=github.repository,
        owner_id=github.owner_id,
        repository_id=github.repository_id,
        create_provider=github.provider == "create",
        seen=_seen(environment),
        **_stack(settings, f"{names.prefix}-github", environment.account, environment.region, environment.bootstrap_qualifier),
    )


def _pipeline(
    app: cdk.App, settings: ReleaseSettings, through: CodePipelineRelease, chosen: Sequence[EnvironmentStage], cli_version: str
) -> None:
    PipelineStack(
        app,
        "pipeline",
        app_name=settings.app,
        source=through.source,
        steps_role_name=_steps_role(settings),
        carried=[
            Carried(
                settings=each,
                stage=stage,
                prefix=Names.of(stage.environment).prefix,
                account=stage.environment.account,
                reader_arn=_role_arn(stage.environment, Names.of(stage.environment).release_reader),
                gate_minutes=stage.environment.gate.schedule_minutes if stage.environment.gate.deploy else None,
            )
            for each, stage in zip(settings.stages, chosen, strict=True)
        ],
        shares_metrics=through.monitoring_sink_arn is not None,
        notify=through.notify,
        cli_version=cli_version,
        **_stack(settings, f"{settings.app}-release", through.account, through.region, None),
    )


def _access(app: cdk.App, settings: ReleaseSettings, through: CodePipelineRelease, environment: Environment) -> None:
    names = Names.of(environment)
    PipelineAccessStack(
        app,
        f"access-{environment.name}",
        role_name=names.release_reader,
        pipeline_account=through.account,
        pipeline_role=_steps_role(settings),
        sink_arn=through.monitoring_sink_arn if environment.account != through.account else None,
        seen=_seen(environment),
        **_stack(settings, f"{names.prefix}-release-access", environment.account, environment.region, environment.bootstrap_qualifier),
    )


def _seen(environment: Environment) -> Seen:
    names, storage = Names.of(environment), environment.storage
    adopted = {path.split(".")[1]: bucket.existing for path, bucket in storage.adopted_buckets.items()}
    own = {"models": names.model_bucket, "certificates": names.tls_bucket, "node_scripts": names.lifecycle_bucket} | adopted
    return Seen(
        prefix=names.prefix,
        eks_cluster=environment.cluster.existing.name if environment.cluster.existing else names.eks_cluster,
        qualifier=environment.bootstrap_qualifier or DEFAULT_QUALIFIER,
        model_bucket=own["models"],
        buckets=(*own.values(), names.log_bucket),
        log_bucket=names.log_bucket,
        key_arn=storage.encryption_key.existing if isinstance(storage.encryption_key, ExistingKey) else None,
        key_alias=names.key_alias(STORAGE),
    )


def _steps_role(settings: ReleaseSettings) -> str:
    return f"{settings.app}-release-steps"


def _role_arn(environment: Environment, name: str) -> str:
    region = regions.find(environment.region)
    return f"arn:{region.partition if region else 'aws'}:iam::{environment.account}:role/{name}"


def _stack(settings: ReleaseSettings, name: str, account: str, region: str, qualifier: str | None) -> dict[str, Any]:
    return {
        **({"synthesizer": cdk.DefaultStackSynthesizer(qualifier=qualifier)} if qualifier else {}),
        "stack_name": name,
        "env": cdk.Environment(account=account, region=region),
        "tags": {**settings.tags, "app": settings.app},
    }
