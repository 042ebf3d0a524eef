"""What is measured, against which yardstick, and how far it may be from it.

A goal is a multiple of its yardstick, so that it means the same on a slow machine and on a fast one.
"""

import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from bench.inputs import DEV, LLMD, folder_of, with_endpoints
from bench.measure import Command, once

ROOT: Final = Path(__file__).parent.parent
PYTHON: Final = sys.executable
DPD: Final = str(Path(PYTHON).parent / "dpd")

IMPORTS: Final = "import pydantic and yaml"
OBJECTS: Final = "cdk8s app of 20 objects"
EMPTY_APP: Final = "empty one-stack CDK app"
ONE_ENVIRONMENT: Final = "app.py, one environment"
LIBRARY: Final = "AWS's comparison of the same templates"
ONE_LLMD: Final = "dpd render, one llm-d endpoint"
TEN_LLMD: Final = "dpd render, 10 llm-d endpoints"
_REFERENCE_SECONDS: Final = {IMPORTS: 0.054, OBJECTS: 0.28}

_BY_CDK: Final = (("CDK_CLI_VERSION", "0"),)
"""Tells the app that the CDK command line runs it."""

_IMPORT: Final = "import pydantic, yaml"
_CDK8S: Final = """
import cdk8s
app = cdk8s.App(outdir="dist")
chart = cdk8s.Chart(app, "c")
for index in range(20):
    cdk8s.ApiObject(chart, f"o{index}", api_version="v1", kind="ConfigMap", metadata={"name": f"o{index}"})
app.synth()
"""
_EMPTY_CDK: Final = """
import aws_cdk as cdk
app = cdk.App()
cdk.CfnResource(cdk.Stack(app, "s"), "r", type="AWS::CloudFormation::WaitConditionHandle")
app.synth()
"""
_LIBRARY: Final = """
import sys
from pathlib import Path
from dpd.review.assembly import read
from dpd.review.library import aws_library
old, new = (read(Path(folder)).stacks for folder in sys.argv[2:])
aws_library(Path(sys.argv[1]))({key: (old[key].template, new[key].template) for key in new})
"""
_REVIEW: Final = '"$0" review --base "$1" --after "$2" --html review.html > review.md; test $? -eq 10'
"""10 is what a review of harmless changes ends with."""
_WATCH: Final = """
import sys
from pathlib import Path
from dpd.environment.load import load
from dpd.observe.files import files
for path in sorted(Path("environments").glob("*.yaml")):
    made = files(load(path).environment)
    print(len(made), "files,", sum(map(len, made.values())), "bytes", file=sys.stderr)
"""


@dataclass(frozen=True, slots=True)
class Case:
    """A measured command, the yardstick it is held against, and the most times slower it may be.

    ``origin`` says where the multiple comes from.
    """

    name: str
    command: Command
    yardstick: str
    most_times: float
    origin: str


@dataclass(frozen=True, slots=True)
class Bench:
    """All yardsticks and cases of a run."""

    yardsticks: dict[str, Command]
    cases: tuple[Case, ...]


def _absolute(name: str, command: Command, yardstick: str, seconds: float) -> Case:
    """A goal given in seconds for a machine on which the yardstick takes its reference time."""
    reference = _REFERENCE_SECONDS[yardstick]
    return Case(name, command, yardstick, seconds / reference, f"{seconds:g} s where the yardstick takes {reference:g} s")


def _assemblies(scratch: Path) -> tuple[str, str]:
    """Two assemblies of three environments with ten endpoints each, which differ in a threshold of every endpoint."""
    made = []
    for name, threshold in (("before", 4096), ("after", 2048)):
        content = with_endpoints(10)
        for endpoint in content["endpoints"]:
            endpoint["routing"]["threshold_tokens"] = threshold
        accounts = {"dev": "111122223333", "staging": "222233334444", "prod": "333344445555"}
        folder = folder_of(scratch, f"review-{name}", {each: content | {"account": account} for each, account in accounts.items()})
        once(Command((PYTHON, str(ROOT / "app.py")), folder, (("CDK_OUTDIR", str(folder / "cdk.out")),)))
        made.append(str(folder / "cdk.out"))
    return made[0], made[1]


def bench(scratch: Path) -> Bench:
    """The benchmark, with its inputs written below ``scratch``."""
    one = folder_of(scratch, "one", {"dev": with_endpoints(1)})
    two = folder_of(scratch, "two", {"dev": with_endpoints(1), "staging": with_endpoints(1) | {"account": "222233334444"}})
    fifty = folder_of(scratch, "fifty", {"dev": with_endpoints(50)})
    hundred = folder_of(scratch, "hundred", {"dev": with_endpoints(100)})
    llmd = {count: folder_of(scratch, f"llmd-{count}", {"dev": with_endpoints(count, LLMD)}) for count in (1, 10, 100)}
    before, after = _assemblies(scratch)
    python = (PYTHON, "-c")
    app = str(ROOT / "app.py")
    check, render = (DPD, "check"), (DPD, "render", "--output", "rendered")
    yardsticks = {
        IMPORTS: Command((*python, _IMPORT), scratch),
        OBJECTS: Command((*python, _CDK8S), scratch),
        EMPTY_APP: Command((*python, _EMPTY_CDK), scratch),
        ONE_ENVIRONMENT: Command((PYTHON, app), one),
        LIBRARY: Command((*python, _LIBRARY, str(ROOT), before, after), scratch),
    }
    cases = (
        _absolute("dpd check, one environment", Command((*check, str(DEV)), one), IMPORTS, 0.25),
        _absolute("dpd check, 100 endpoints", Command(check, hundred), IMPORTS, 1.0),
        _absolute("dpd replay, one day lived four times", Command((DPD, "replay", str(LLMD), "--ceilings", "8:4"), one), IMPORTS, 3.0),
        _absolute("dpd render, one endpoint", Command(render, one), OBJECTS, 0.6),
        _absolute("dpd render, 100 endpoints", Command(render, hundred), OBJECTS, 3.0),
        _absolute(ONE_LLMD, Command(render, llmd[1]), OBJECTS, 0.7),
        Case(TEN_LLMD, Command(render, llmd[10]), ONE_LLMD, 2.5, "our own"),
        Case("dpd render, 100 llm-d endpoints", Command(render, llmd[100]), TEN_LLMD, 10.0, "linear"),
        Case("app.py for one environment", Command((PYTHON, app), one), EMPTY_APP, 2.5, "as stated"),
        Case("the same with CDK's own validation, as cdk runs it", Command((PYTHON, app), one, _BY_CDK), EMPTY_APP, 2.5, "as stated"),
        Case("app.py, two environments", Command((PYTHON, app), two), ONE_ENVIRONMENT, 1.15, "as stated"),
        Case(
            "dpd review, 3 environments x 10 endpoints",
            Command(("sh", "-c", _REVIEW, DPD, before, after), scratch),
            LIBRARY,
            2.5,
            "as stated",
        ),
        _absolute("dashboards and rules for 50 endpoints (5 MB)", Command((*python, _WATCH), fifty), IMPORTS, 2.0),
        Case("app.py, 50 endpoints", Command((PYTHON, app), fifty), ONE_ENVIRONMENT, 1.5, "as stated"),
    )
    return Bench(yardsticks, cases)
