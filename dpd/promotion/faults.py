"""What can stand against a promotion, each with the reason that ``dpd explain`` gives."""

from functools import partial
from typing import Final

from dpd.environment.faults import Fault
from dpd.finding import Level

_fault = partial(Fault, link="docs/promotion.md")

NO_REPORT: Final = _fault(
    "PRM001",
    "The health gate proved the earlier environment",
    "Without a report nobody knows whether the release ever served a request through prefill and decode. Absent is not passed.",
)
NOT_PASSED: Final = _fault(
    "PRM002",
    "The newest report says PASS, of every check",
    "A report that failed, or that could not look, proves nothing; an older one that passed speaks of what has failed since.",
)
STALE: Final = _fault(
    "PRM003",
    "The report is young enough",
    "Nodes, weights and images behind a tag change without a deployment. What was proven weeks ago may not hold today.",
)
OTHER_RELEASE: Final = _fault(
    "PRM004",
    "The report speaks of this release",
    "The gate's digest covers arguments, variables, images, model and resources of every pod. Another digest means that something else "
    "passed: the earlier environment was not deployed from this assembly.",
)
DIFFERENT: Final = _fault(
    "PRM005",
    "The manifests differ at declared places alone",
    "What passed in one environment says nothing of other arguments, limits or routes in the next. A difference is declared, with its "
    "reason, or it is a mistake.",
)
ONE_SIDED: Final = _fault(
    "PRM006",
    "Both environments have the same objects",
    "An object that exists in one environment alone was not part of what passed, or what passed depended on it.",
)
OTHER_IMAGE: Final = _fault(
    "PRM007",
    "Every image is the same, by its digest",
    "A tag can point at another image by the time the next environment pulls it; the endpoint then runs software that never passed.",
)
OTHER_MODEL: Final = _fault(
    "PRM008",
    "The model and its revision are the same, and known",
    "Weights of another commit answer differently, load differently and may not fit. A folder of a bucket does not say which commit "
    "lies in it.",
)
UNUSED_DIFFERENCE: Final = _fault(
    "PRM009",
    "Every declared difference occurs",
    "One that matches nothing is misspelled, or left over: it would let the difference pass when it comes back.",
    level=Level.WARNING,
)
ALARM: Final = _fault(
    "PRM010",
    "No alarm of the earlier environment is raised while it is watched",
    "The gate sends single prompts; alarms see what clients meet afterwards. An alarm whose state nobody could read is not a quiet one.",
)

FAULTS: Final = (
    NO_REPORT, NOT_PASSED, STALE, OTHER_RELEASE, DIFFERENT, ONE_SIDED, OTHER_IMAGE, OTHER_MODEL, UNUSED_DIFFERENCE, ALARM,
)  # fmt: skip
"""All of them."""
