"""Prices, each with where it was read and when: of the catalog, of a dated file that was fetched, or given by the user."""

import math
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import date
from functools import cache
from typing import Any, Final, Literal, get_args

from dpd.catalog import instances
from dpd.catalog.sources import Source, source
from dpd.catalog.tables import yaml_table

Purchase = Literal["on_demand", "training_plan", "spot"]
PURCHASES: Final[tuple[Purchase, ...]] = get_args(Purchase)
_OTHER_NAMES: Final = {
    "nat_gateway": "network", "interface_endpoint": "network", "load_balancer": "network",
    "persistent_2_125": "lustre", "persistent_2_250": "lustre", "persistent_2_500": "lustre", "persistent_2_1000": "lustre",
}  # fmt: skip
"""What besides nodes is billed by the hour, by kind. Lustre's are of one GiB at so many MB/s for each TiB."""
AWS_PRICE_LIST: Final = "https://aws.amazon.com/sagemaker/ai/pricing/"


@dataclass(frozen=True, slots=True)
class Price:
    """A price of one unit for one hour. ``basis`` says what it is the price of, where that is not quite the thing itself."""

    usd_per_hour: float
    region: str
    basis: str
    source: Source
    as_of: date

    def __str__(self) -> str:
        return f"{self.usd_per_hour:,.2f} USD/h ({self.basis}; {self.region}, {self.as_of}, {self.source.url})"


@dataclass(frozen=True, slots=True)
class Listed:
    """A price with what it is for. ``purchase`` matters for nodes only."""

    kind: str
    name: str
    purchase: Purchase
    price: Price


class PriceBook:
    """Prices by precedence: what comes first wins; the catalog comes last."""

    def __init__(self, first: Iterable[Listed] = ()) -> None:
        self._listed = (*first, *_catalog())

    def find(self, kind: str, name: str, purchase: Purchase = "on_demand") -> Price | None:
        """The price of a thing, or ``None`` when no source states one: never a guess."""
        return next((one.price for one in self._listed if (one.kind, one.name, one.purchase) == (kind, name, purchase)), None)


@cache
def _catalog() -> tuple[Listed, ...]:
    return tuple(
        Listed(
            row["kind"],
            row["name"],
            row.get("purchase", "on_demand"),
            Price(row["usd_per_hour"], row["region"], row["basis"], source(row["source"]), row["as_of"]),
        )
        for row in yaml_table("prices")
    )


def given(text: str, *, today: date) -> tuple[Listed, ...]:
    """A price from a command line, ``name=usd`` for every way to buy, or ``name:spot=usd`` for one. Raises ``ValueError``."""
    name, sign, number = text.partition("=")
    name, _, purchase = name.strip().partition(":")
    try:
        usd = float(number)
    except ValueError:
        usd = math.nan
    if not (sign and name and math.isfinite(usd) and usd >= 0) or (purchase and purchase not in PURCHASES):
        raise ValueError(f"{text[:80]!r} is no price; write it as ml.p5.48xlarge=63.30, or ml.p5.48xlarge:spot=21 ({', '.join(PURCHASES)})")
    kind = _kind(name)
    if kind is None:
        known = "an instance type such as ml.p5.48xlarge, " + ", ".join(_OTHER_NAMES)
        raise ValueError(f"{name[:80]!r} is nothing that has a price here; there are: {known}")
    said = Price(usd, "as given", "given by you", Source("given", "Given on the command line", "--price", today), today)
    return tuple(Listed(kind, name, way, said) for way in PURCHASES if purchase in ("", way))


def _kind(name: str) -> str | None:
    return "instance" if instances.find(name) else _OTHER_NAMES.get(name)


def fetched(document: Any) -> tuple[Listed, ...]:
    """The prices of a file that ``dpd plan --refresh-prices`` wrote. Raises ``ValueError`` for a file that is not one."""
    try:
        day, region, rows = document["as_of"], document["region"], document["prices"]
        if not isinstance(day, date) or not isinstance(region, str):
            raise TypeError
        listed = source_of(day)
        found = tuple(
            Listed("instance", str(row["name"]), row["purchase"], Price(float(row["usd_per_hour"]), region, "HyperPod", listed, day))
            for row in rows
        )
    except (KeyError, TypeError, ValueError):
        raise ValueError("is no price file; write it again with: dpd plan … --refresh-prices") from None
    return found


def source_of(day: date) -> Source:
    """The AWS price list on a day."""
    return Source("aws-price-list", "AWS Price List API, AmazonSageMaker", AWS_PRICE_LIST, day)


def find(kind: str, name: str) -> Price | None:
    """The catalog's own price of a thing, or ``None`` when no source states one: never a guess."""
    return PriceBook().find(kind, name)
