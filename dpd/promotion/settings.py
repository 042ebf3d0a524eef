"""The release file (``pipeline.yaml``): through which environments a release goes, and who carries it there."""

import re
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Annotated, Final, Literal, Self

from pydantic import Field, model_validator

from dpd.environment.environment import Environment, TagKey, TagValue
from dpd.environment.faults import UNREADABLE, Fault
from dpd.environment.gate import EmailAddress
from dpd.environment.load import typed
from dpd.environment.types import AccountId, Arn, DnsLabel, Many, Part, Region, Text, matching
from dpd.environment.yaml_file import YamlError, read
from dpd.finding import Finding, safe

Repository = Annotated[
    Text, matching(re.compile(r"[A-Za-z0-9_.-]+/[A-Za-z0-9_.-]+"), "must be a repository, as <owner>/<name>", "example/llama-dpd")
]
NumericId = Annotated[Text, Field(pattern=r"^[0-9]{1,20}$", examples=["583231"])]

SinkArn = Annotated[
    Arn,
    Field(
        pattern=r"^arn:aws[a-z-]*:oam:[a-z0-9-]+:[0-9]{12}:sink/[a-f0-9-]+$",
        examples=["arn:aws:oam:us-east-2:444455556666:sink/1a2b3c4d-1111-2222-3333-444455556666"],
    ),
]


class ReleaseStage(Part):
    """One environment on the way of a release."""

    environment: DnsLabel
    """Name of the environment: its file in `environments/`, without `.yaml`."""
    soak_minutes: Annotated[int, Field(ge=0, le=1440)] = 30
    """How long its alarms are watched before the release goes on."""
    approval: bool = False
    """Whether somebody must approve before it is deployed, with the review at hand."""
    on_failure: Literal["rollback", "stop"] = "rollback"
    """What follows a failed deployment or an alarm of the soak (CodePipeline): the release before is deployed again, or nothing."""
    allow_replace: Annotated[Text, Field(min_length=8)] | None = None
    """Why this one release may replace or remove what holds capacity or data. Remove it after the release."""


class Connection(Part):
    """Where the source comes from."""

    repository: Repository
    """Repository, as `<owner>/<name>`."""
    branch: Annotated[Text, Field(pattern=r"^[A-Za-z0-9._/-]+$", max_length=255, examples=["main"])]
    """Branch whose commits are released."""
    connection_arn: Annotated[
        Arn,
        Field(
            pattern=r"^arn:aws[a-z-]*:codeconnections:[a-z0-9-]+:[0-9]{12}:connection/[a-f0-9-]+$",
            examples=["arn:aws:codeconnections:us-east-2:444455556666:connection/0a1b2c3d-1111-2222-3333-444455556666"],
        ),
    ]
    """CodeConnections connection to the repository's host, in state Available."""


class CodePipelineRelease(Part):
    """A release through AWS CodePipeline."""

    account: AccountId
    """Account of the pipeline, in quotes."""
    region: Region
    """Region of the pipeline."""
    source: Connection
    """Where the source comes from."""
    monitoring_sink_arn: SinkArn | None = None
    """CloudWatch's cross-account sink in the pipeline's account. With it a stage rolls back when its alarm is raised in the soak."""
    notify: Annotated[Many[EmailAddress], Field(max_length=10)] = ()
    """E-mail addresses that hear of approvals to give and of raised alarms. Each confirms its subscription once."""


class GitHubRelease(Part):
    """A release through GitHub Actions."""

    repository: Repository
    """Repository, as `<owner>/<name>`."""
    owner_id: NumericId
    """Id of the owner (`gh api users/<owner> --jq .id`), in quotes. Subjects of newer repositories hold it."""
    repository_id: NumericId
    """Id of the repository (`gh api repos/<owner>/<name> --jq .id`), in quotes."""
    provider: Literal["create", "existing"]
    """Whether GitHub's OpenID Connect provider is made in each account, or is there already; an account has one at most."""


class ReleaseSettings(Part):
    """The way of a release. Tell at least one of `codepipeline` and `github`."""

    version: Literal[1]
    """Version of the file format."""
    app: Annotated[DnsLabel, Field(max_length=20)]
    """Name of the release; its stacks are called `<app>-release…`."""
    tags: Annotated[dict[TagKey, TagValue], Field(max_length=45)] = {}
    """Tags on every resource of the release itself."""
    stages: Annotated[Many[ReleaseStage], Field(min_length=1, max_length=10)]
    """Environments in the order in which a release passes them."""
    codepipeline: CodePipelineRelease | None = None
    """Through AWS CodePipeline."""
    github: GitHubRelease | None = None
    """Through GitHub Actions."""

    @model_validator(mode="after")
    def _somebody_carries_it(self) -> Self:
        if self.codepipeline is None and self.github is None:
            raise ValueError("nobody carries the release; give codepipeline, github or both")
        return self


UNKNOWN_ENVIRONMENT: Final = Fault(
    "REL001",
    "Every stage of a release is an environment, once",
    "A stage deploys what its environment file describes; without a file there is nothing to deploy, and twice the same would wait for "
    "itself.",
    link="docs/pipeline.md",
)
UNPROVEN: Final = Fault(
    "REL002",
    "What a release leaves behind is proven by the health gate",
    "A release goes on because the gate of the stage before passed. Without a gate nothing would ever be promoted; with a soak shorter "
    "than the gate's schedule nothing new is measured in it.",
    link="docs/pipeline.md",
)
OTHER_REGION: Final = Fault(
    "REL003",
    "Alarms are watched in their own Region",
    "CloudWatch shares metrics between accounts of one Region. A condition of the pipeline on an alarm elsewhere would wait for data that "
    "never come.",
    link="docs/pipeline.md",
)
FAULTS: Final = (UNKNOWN_ENVIRONMENT, UNPROVEN, OTHER_REGION)
"""What can be wrong with the way of a release, beside mistakes in the file itself."""


def load(path: Path) -> tuple[ReleaseSettings | None, list[Finding]]:
    """Read a release file, or all that is wrong with it. Never raises for what a user may have written."""
    name = safe(str(path))
    try:
        document = read(path)
    except YamlError as error:
        return None, [UNREADABLE.finding("", error.message, error.fix or "correct the file").at(name, error.line)]
    return typed(document, ReleaseSettings, file=name, folder=path.parent)


def against(settings: ReleaseSettings, environments: Sequence[Environment]) -> Iterator[Finding]:
    """What is wrong between a release file and the environments."""
    known = {environment.name: environment for environment in environments}
    names = [stage.environment for stage in settings.stages]
    for index, stage in enumerate(settings.stages):
        path, environment = f"stages[{index}]", known.get(stage.environment)
        if environment is None or stage.environment in names[:index]:
            what = "is a stage already" if environment else "has no file in environments/"
            yield UNKNOWN_ENVIRONMENT.finding(
                f"{path}.environment", what, f"name one of {', '.join(known) or '(none)'}", value=stage.environment
            )
            continue
        yield from _proven(stage, environment, path, last=index == len(names) - 1)
        carrier = settings.codepipeline
        if carrier and carrier.monitoring_sink_arn and stage.soak_minutes and environment.region != carrier.region:
            yield OTHER_REGION.finding(
                f"{path}.soak_minutes",
                f"the pipeline cannot see alarms of {environment.region}",
                "put the pipeline into that Region, or leave monitoring_sink_arn out: dpd promote watches the alarms then",
                value=environment.region,
                limit=carrier.region,
            )


def _proven(stage: ReleaseStage, environment: Environment, path: str, *, last: bool) -> Iterator[Finding]:
    gate = environment.gate
    if not gate.deploy:
        if not last:
            yield UNPROVEN.finding(f"{path}.environment", "has no health gate, so nothing goes on from here",
                                   f"set gate.deploy in environments/{stage.environment}.yaml", value=stage.environment)  # fmt: skip
    elif stage.soak_minutes and (gate.schedule_minutes is None or gate.schedule_minutes > stage.soak_minutes):
        wanted = f"at least {gate.schedule_minutes}" if gate.schedule_minutes else "0, or give the gate a schedule"
        yield UNPROVEN.finding(f"{path}.soak_minutes", "ends before the gate looks again", f"soak {wanted}", value=stage.soak_minutes)
