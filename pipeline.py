"""The CDK app of releases: what ``pipeline.yaml`` names. `app.py` needs none of it, and `make synth` never runs it."""

import gc
import json
import sys
from datetime import UTC, datetime
from pathlib import Path

from charts.render import render_examined
from commands import report
from commands.files import shipped
from dpd.checks.files import examine
from dpd.checks.registry import Context
from dpd.finding import Finding, Level
from dpd.promotion.settings import against, load
from stacks.assembly import begin, finish
from stacks.release import release_stacks
from stacks.stage import EnvironmentStage

HERE = Path(__file__).parent
SETTINGS = Path("pipeline.yaml")


def main() -> int:
    """Check the release file and the environment files, then build all of it. Returns the exit code."""
    gc.disable()
    app = begin(HERE / "cdk.json")
    settings, mistakes = load(SETTINGS)
    if settings is None:
        return _stopped(mistakes)
    examined = examine(shipped(), Context(today=datetime.now(UTC).date()))
    found = [*examined.findings, *(finding.at(str(SETTINGS), 0) for finding in against(settings, examined.environments))]
    if stops := [finding for finding in found if finding.stops]:
        return _stopped(stops)
    rendered, unfit = render_examined(examined.environments)
    if unfit:
        return _stopped(unfit)
    stages = [EnvironmentStage(app, *pair) for pair in zip(examined.environments, rendered, strict=True)]
    versions = json.loads((HERE / "package.json").read_text(encoding="utf-8"))["devDependencies"]
    release_stacks(app, settings, stages, cli_version=versions["aws-cdk"])
    return finish(app, stages, examined.findings)


def _stopped(findings: list[Finding]) -> int:
    report.write([finding for finding in findings if finding.level is Level.ERROR], files=1, stream=sys.stderr)
    return 1


if __name__ == "__main__":
    sys.exit(main())
