"""Check environment files: each by itself, and all of them beside each other."""

from collections.abc import Hashable, Iterable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path

from dpd.checks.registry import Context, run
from dpd.environment.environment import Environment
from dpd.environment.faults import SAME_NAME, SHARED, Fault
from dpd.environment.load import Loaded, load
from dpd.environment.names import Names
from dpd.finding import Finding, in_order
from dpd.preflight import store


@dataclass(frozen=True, slots=True)
class Examined:
    """What was read, and every finding about it in order."""

    files: tuple[Loaded, ...]
    findings: tuple[Finding, ...]

    @property
    def environments(self) -> tuple[Environment, ...]:
        """The environments that could be read, in the order of the files."""
        return tuple(loaded.environment for loaded in self.files if loaded.environment is not None)

    @property
    def stops(self) -> bool:
        """Whether a finding must stop a synth."""
        return any(finding.stops for finding in self.findings)


def examine(paths: Iterable[Path], context: Context) -> Examined:
    """Read environment files, with what their accounts said last, and run every check. A file that is given twice is read once."""
    given = tuple({path.absolute(): path for path in paths}.values())
    files = tuple(map(load, given))
    findings = [finding for loaded in files for finding in loaded.findings]
    for path, loaded in zip(given, files, strict=True):
        if loaded.environment is not None:
            known = context if context.preflight else replace(context, preflight=store.read(store.path_for(path)))
            findings += [loaded.placed(finding) for finding in run(loaded.environment, known)]
    findings += _side_by_side(files)
    return Examined(files, tuple(in_order(findings)))


def _side_by_side(files: tuple[Loaded, ...]) -> Iterator[Finding]:
    """What only shows when several environments are looked at together, reported in the later file."""
    seen: dict[Hashable, Loaded] = {}
    for loaded in files:
        if loaded.environment is None:
            continue
        for fault, what, path, said, fix in _claims(loaded.environment):
            other = seen.setdefault((fault.id, what), loaded)
            if other is not loaded:
                yield loaded.placed(fault.finding(path, f"{said}; so does {other.file}", fix))


def _claims(environment: Environment) -> Iterator[tuple[Fault, Hashable, str, str, str]]:
    """Everything that one environment may have to itself: the fault, the thing, its place, words and fix."""
    name, account, region = environment.name, environment.account, environment.region
    yield SAME_NAME, name, "", f"the environment is called {name}", "rename one of the two files"
    prefix = Names.of(environment).prefix
    said = f"stacks, buckets and cluster in account {account}, {region}, are called {prefix}-…"
    yield SHARED, (account, region, prefix), "app", said, "change app, or rename one of the two files"
    if (adopted := environment.cluster.existing) is not None:
        said = f"puts a HyperPod cluster and its operator on the EKS cluster {adopted.name} in account {account}, {region}"
        yield (
            SHARED,
            (account, region, "eks", adopted.name),
            "cluster.existing.name",
            said,
            "give each environment an EKS cluster of its own",
        )
    yield from _claims_outside(environment)


def _claims_outside(environment: Environment) -> Iterator[tuple[Fault, Hashable, str, str, str]]:
    """What environments with different names can still contend for."""
    account, region = environment.account, environment.region
    for index, endpoint in enumerate(environment.endpoints):
        place = f"endpoints[{index}].exposure"
        if (name := endpoint.exposure.sagemaker_endpoint) is not None:
            said = f"registers the SageMaker endpoint {name} in account {account}, {region}"
            yield SHARED, (account, region, "sagemaker", name.lower()), f"{place}.sagemaker_endpoint", said, "give each its own name"
        if (certificate := endpoint.exposure.certificate) is not None:
            said = f"serves {certificate.domain_name}, and a name leads to one load balancer"
            fix = "give each a domain name of its own"
            yield SHARED, ("domain", certificate.domain_name), f"{place}.certificate.domain_name", said, fix
    if (network := environment.network.existing) is not None and network.s3_gateway_endpoint == "create":
        for index, table in enumerate(network.route_table_ids):
            said = f"adds a gateway endpoint for S3 to {table}, which takes one"
            fix = "write s3_gateway_endpoint: exists in all but one of them"
            yield SHARED, ("route table", table), f"network.existing.route_table_ids[{index}]", said, fix
