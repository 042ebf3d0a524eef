"""cfn-lint and cdk-nag have nothing to say about the network and storage stacks, in the forms that no shipped environment has."""

import json
from pathlib import Path
from typing import Any, Final

import pytest
from aws_cdk import App, Stage, Validations
from aws_cdk import Environment as Place
from cdk_nag import AwsSolutionsChecks
from cfnlint.api import ManualArgs, lint

from tests.stacks import test_network as network
from tests.stacks import test_storage as storage
from tests.stacks.support import context, synthesized
from tests.support import environment

FORMS: Final[dict[str, dict[str, Any]]] = {
    "closed": network.CLOSED,
    "no flow logs": {"network.flow_logs": False},
    "inside": {**network.INSIDE, **storage.NO_LUSTRE},
    "adopted network": {**network.ADOPTED_WITHOUT_S3, **storage.EFA},
    "adopted bucket and key": {**storage.ADOPTED_BUCKET_WITH_KEY, **storage.ADOPTED_KEY},
    "adopted Lustre": storage.ADOPTED_LUSTRE,
}


@pytest.mark.parametrize("changes", FORMS.values(), ids=FORMS)
def test_cfn_lint_finds_nothing(changes: dict[str, Any]) -> None:
    for template in synthesized(storage.build, changes).templates.values():
        found = lint(template.text, config=ManualArgs(include_checks=["I3"], regions=["us-east-2"]))
        assert [f"{match.rule.id} {match.message}" for match in found] == []


def test_cdk_nag_finds_nothing(tmp_path: Path) -> None:
    app = App(outdir=str(tmp_path), context=context(), analytics_reporting=False)
    Validations.of(app).add_plugins(AwsSolutionsChecks(app))
    for index, changes in enumerate(FORMS.values()):
        typed = environment(changes)
        storage.build(Stage(app, f"form{index}", env=Place(account=typed.account, region=typed.region)), typed)
    app.synth()
    reports = json.loads((tmp_path / "validation-report.json").read_text(encoding="utf-8"))["pluginReports"]
    assert [violation for report in reports for violation in report["violations"]] == []
