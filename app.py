"""The CDK app: every environment of `environments/` becomes a stage. `-c env=NAME` takes one of them."""

import json
import os
import sys
from datetime import UTC, datetime
from pathlib import Path

import aws_cdk as cdk

from commands import report
from commands.files import shipped
from dpd.checks.files import examine
from dpd.checks.registry import Context
from dpd.finding import Level

HERE = Path(__file__).parent


def main() -> int:
    """Check the environment files, then build what they describe. Returns the exit code."""
    # The CDK command line passes cdk.json's context by itself; without it the templates must be the same.
    context = json.loads((HERE / "cdk.json").read_text(encoding="utf-8"))["context"]
    # CDK's own validation of templates takes as long as the rest. Whatever `cdk` does has it; a bare run of this file does not.
    app = cdk.App(
        context=context, tree_metadata=False, stack_traces=False, builtin_cloud_formation_validation="CDK_CLI_VERSION" in os.environ
    )
    wanted = app.node.try_get_context("env")
    files = shipped()
    chosen = [path for path in files if wanted in (None, path.stem)]
    if not chosen:
        known = ", ".join(path.stem for path in files) or "none; write one with: dpd init"
        print(f"Error: there is no environment {wanted or ''} in environments/. There are: {known}.".replace("  ", " "), file=sys.stderr)
        return 1
    examined = examine(chosen, Context(today=datetime.now(UTC).date()))
    # Notes and accepted findings are for `dpd check`; a synthesis only says what still needs a decision.
    if said := [finding for finding in examined.findings if finding.level is not Level.INFO and not finding.acknowledged]:
        report.write(said, files=len(chosen), stream=sys.stderr)
    if examined.stops:
        return 1
    from charts.render import render_examined  # noqa: PLC0415 - not for files that are wrong
    from stacks.assembly import finish  # noqa: PLC0415
    from stacks.stage import EnvironmentStage  # noqa: PLC0415

    rendered, unfit = render_examined(examined.environments)
    if unfit:
        report.write(unfit, files=len(chosen), stream=sys.stderr)
        return 1
    return finish(app, [EnvironmentStage(app, *pair) for pair in zip(examined.environments, rendered, strict=True)])


if __name__ == "__main__":
    sys.exit(main())
