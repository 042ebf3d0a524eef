"""Assemblies on disk, each synthesized once, and AWS's library."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from aws_cdk import App

from charts.render import render_all
from dpd.checks.registry import Context, run
from dpd.review.assembly import Assembly, read
from dpd.review.library import Library, LibraryError, aws_library
from stacks.assembly import finish
from stacks.stage import EnvironmentStage
from tests.support import ROOT, TODAY, environment

Synthesize = Callable[[dict[str, Any]], Assembly]


@pytest.fixture(scope="session")
def library() -> Library:
    try:
        return aws_library(ROOT)
    except LibraryError as error:
        pytest.skip(str(error))


@pytest.fixture(scope="session")
def assembly(tmp_path_factory: pytest.TempPathFactory) -> Synthesize:
    known: dict[str, Assembly] = {}
    context = json.loads((ROOT / "cdk.json").read_text(encoding="utf-8"))["context"]

    def synthesize(changes: dict[str, Any]) -> Assembly:
        key = json.dumps(changes, sort_keys=True)
        if key not in known:
            folder = tmp_path_factory.mktemp("assembly")
            app = App(outdir=str(folder), context=context, analytics_reporting=False, builtin_cloud_formation_validation=False)
            made = environment(changes)
            findings = [found.at("environments/dev.yaml", 0) for found in run(made, Context(today=TODAY))]
            assert finish(app, [EnvironmentStage(app, made, render_all(made))], findings) == 0
            known[key] = read(Path(folder))
        return known[key]

    return synthesize
