"""Around a synthesis: which environments take part, and what is done with its result."""

import json
import os
import re
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Final

import aws_cdk as cdk

from charts import render
from dpd.finding import Finding
from dpd.review.assembly import MANIFESTS
from dpd.review.summary import write_summary
from stacks.stage import EnvironmentStage

DOCUMENTS: Final = "observe"
"""Folder of the assembly with dashboards and files of rules."""
_TEMPLATE_LIMIT: Final = 1_000_000
_PLACEHOLDER: Final = re.compile(r"[\w.-]{0,40}dummy[\w.-]{0,40}", re.IGNORECASE)


def begin(settings: Path) -> cdk.App:
    """Make the app with the context of ``cdk.json``: the templates are the same with and without the CDK command line.

    CDK's own validation of templates takes as long as all the rest. Whatever its command line does has it; a bare run of
    the app does not.
    """
    context = json.loads(settings.read_text(encoding="utf-8"))["context"]
    validated = "CDK_CLI_VERSION" in os.environ
    return cdk.App(context=context, tree_metadata=False, stack_traces=False, builtin_cloud_formation_validation=validated)


def finish(app: cdk.App, stages: Sequence[EnvironmentStage], findings: Sequence[Finding] = ()) -> int:
    """Synthesize, write manifests and summaries beside the templates, and refuse what must not be deployed. Returns the exit code."""
    try:
        outdir = Path(app.synth().directory)
    except RuntimeError as error:
        if "ValidationFailed" not in str(error):
            raise
        print(f"Error: {'; '.join(_refused(Path(app.outdir)))}", file=sys.stderr)
        return 1
    for stage in stages:
        render.write(stage.rendered, outdir / MANIFESTS)
        if stage.rendered.documents:
            render.write_documents(stage.rendered, outdir / DOCUMENTS)
        write_summary(stage.environment, findings, outdir)
    found = [problem for stage in stages for problem in unfit(Path(stage.outdir))]
    for problem in found:
        print(f"Error: {problem}", file=sys.stderr)
    return 1 if found else 0


def _refused(folder: Path) -> list[str]:
    """Why CDK's own validation refuses an assembly, and where."""
    report = json.loads((folder / "validation-report.json").read_text(encoding="utf-8"))
    violations = [violation for plugin in report["pluginReports"] for violation in plugin["violations"]]
    return [f"{violation['description']} ({violation['violatingConstructs'][0]['constructPath']})" for violation in violations]


def unfit(folder: Path) -> list[str]:
    """What makes the templates of a folder unfit to deploy, in words.

    CDK fills in made-up values, such as the AZ ``dummy1a``, in place of a look-up that it cannot make, and deploys them:
    https://github.com/aws/aws-cdk/issues/9226. Sizes are limits of CloudFormation.
    """
    found = []
    for template in sorted(folder.glob("*.template.json")):
        text = template.read_text(encoding="utf-8")
        if "dummy" in text.lower():
            found += [f"{template.name} holds {word!r}, a placeholder" for word in sorted(set(_PLACEHOLDER.findall(text)))]
        if (size := len(text.encode())) > _TEMPLATE_LIMIT:
            found.append(f"{template.name} has {size:,} bytes; CloudFormation takes {_TEMPLATE_LIMIT:,}")
    return found
