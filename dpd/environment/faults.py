"""The ids of what can be wrong with an environment file before any rule runs, with what ``dpd explain`` says of them."""

from dataclasses import dataclass
from typing import Final

from dpd.finding import Finding, Level, safe, shown

REFERENCE: Final = "docs/configuration.md"
_YAML: Final = "https://yaml.org/type/"


@dataclass(frozen=True, slots=True)
class Fault:
    """A kind of fault. It has the same parts as a check, so that both are explained in the same way."""

    id: str
    title: str
    why: str
    link: str = REFERENCE
    level: Level = Level.ERROR
    seen_in: tuple[str, ...] = ()

    def finding(self, path: str, message: str, fix: str, *, value: object = None, key: str = "", limit: str = "") -> Finding:
        """A finding of this kind. The message may quote the file: it is made safe to print."""
        return Finding(
            id=self.id, level=self.level, path=path, message=safe(message), value=shown(value, key=key), limit=limit, fix=safe(fix),
            link=self.link,
        )  # fmt: skip


UNREADABLE: Final = Fault(
    "CFG001",
    "An environment file can be read",
    "A file that is missing, empty, not UTF-8, not YAML or not one mapping holds no environment. A file that is only partly understood "
    "would build something else than its author reviewed.",
)
MISSING: Final = Fault(
    "CFG002",
    "Required keys are present",
    "Nothing that costs money or decides where data lives has a default: instance types, counts, capacity, AZ ids, retention. "
    "A missing key is therefore a decision that nobody made.",
)
UNKNOWN: Final = Fault(
    "CFG003",
    "Every key is known",
    "A misspelled key that is silently ignored leaves the default in force, and the difference is found on billed nodes. "
    "Fields of the backend that this file has no word for go under `raw`.",
)
WRONG_TYPE: Final = Fault(
    "CFG004",
    "Every value has the type of its key",
    "Values are never converted: `yes`, `1.30` or an account id without quotes are a truth value, 1.3 and a number in YAML, and a "
    "guess would hide that.",
    link=_YAML,
)
WRONG_VALUE: Final = Fault(
    "CFG005",
    "Every value is inside its limits",
    "The limits are those of the AWS and Kubernetes APIs that receive the value; beyond them a deployment fails late, often after "
    "nodes have started.",
)
WRONG_NAME: Final = Fault(
    "CFG006",
    "The file's name is a usable environment name",
    "The name of the file is the name of the environment: it becomes the CDK stage and part of every stack, bucket and role name, so "
    "it must be a DNS label.",
)
SURPRISING: Final = Fault(
    "CFG007",
    "The file says what it seems to say",
    "YAML keeps the last of two equal keys, reads 010 as 8 and 1:30 as 90, and builds objects from tags. In each case the file means "
    "something else than a reviewer sees.",
    link=_YAML,
)
SAME_NAME: Final = Fault(
    "CFG008",
    "Every environment has a name of its own",
    "All environments are stages of one cloud assembly. Two of the same name would overwrite each other's templates and manifests.",
)
SHARED: Final = Fault(
    "CFG009",
    "No two environments own the same thing",
    "Stacks, buckets, roles and clusters are named `<app>-<environment>-…` in one account and Region, and an EKS cluster carries one "
    "HyperPod cluster and one inference operator. Two environments with the same names would update or replace each other; a SageMaker "
    "endpoint, a domain name or a route to S3 that two of them make is refused for the second, or taken from the first.",
)
UNUSED_ACKNOWLEDGEMENT: Final = Fault(
    "ACK001",
    "Every acknowledgement accepts something",
    "An acknowledgement that matches no finding is either misspelled, so that the finding still stops the synth, or left over, so that "
    "it would hide the finding when it comes back. Some findings cannot be accepted: nothing can be built of such a file.",
    link="docs/checks.md",
    level=Level.WARNING,
)

UNANSWERABLE: Final = Fault(
    "PLN001",
    "A plan's question has an answer",
    "`dpd plan` compares layouts of one model over the GPUs of one endpoint. Where the model fits none of them, the GPU was never "
    "measured, a request is longer than the model may read, or an objective is below what one request alone takes, any number would be a "
    "guess.",
    link="docs/planning.md",
)
BROKEN_TRACE: Final = Fault(
    "PLN002",
    "Every line of a trace can be read",
    "A trace with some lines left out has another rate and other lengths than what was recorded, and the plan would answer for a traffic "
    "that never was.",
    link="docs/planning.md",
)

FAULTS: Final = (
    UNREADABLE, MISSING, UNKNOWN, WRONG_TYPE, WRONG_VALUE, WRONG_NAME, SURPRISING, SAME_NAME, SHARED, UNUSED_ACKNOWLEDGEMENT,
    UNANSWERABLE, BROKEN_TRACE,
)  # fmt: skip
"""All of them, in the order of the table of checks."""
