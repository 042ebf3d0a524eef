"""The CDK app: every environment of `environments/` becomes a stage. `-c env=NAME` takes one of them."""

import gc
import sys
from datetime import UTC, datetime
from pathlib import Path

from charts.render import render_examined
from commands import report
from commands.files import shipped
from dpd.checks.files import examine
from dpd.checks.registry import Context
from dpd.finding import Level
from stacks.assembly import begin, finish
from stacks.stage import EnvironmentStage


def main() -> int:
    """Check the environment files, then build what they describe. Returns the exit code."""
    gc.disable()  # nothing is thrown away before the end, and looking for it takes a tenth of the time
    app = begin(Path(__file__).with_name("cdk.json"))
    wanted = app.node.try_get_context("env")
    files = shipped()
    chosen = [path for path in files if wanted in (None, path.stem)]
    if not chosen:
        known = ", ".join(path.stem for path in files) or "none; write one with: dpd init"
        print(f"Error: there is no environment {wanted or 'file'} in environments/. There are: {known}.", file=sys.stderr)
        return 1
    examined = examine(chosen, Context(today=datetime.now(UTC).date()))
    # Notes and accepted findings are for `dpd check`; a synthesis only says what still needs a decision.
    if said := [finding for finding in examined.findings if finding.level is not Level.INFO and not finding.acknowledged]:
        report.write(said, files=len(chosen), stream=sys.stderr)
    if examined.stops:
        return 1
    rendered, unfit = render_examined(examined.environments)
    if unfit:
        report.write(unfit, files=len(chosen), stream=sys.stderr)
        return 1
    return finish(app, [EnvironmentStage(app, *pair) for pair in zip(examined.environments, rendered, strict=True)], examined.findings)


if __name__ == "__main__":
    sys.exit(main())
