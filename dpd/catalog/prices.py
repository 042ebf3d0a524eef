"""Prices, each with where it was read and when."""

from dataclasses import dataclass
from datetime import date

from dpd.catalog.sources import Source, source
from dpd.catalog.tables import yaml_table


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


def find(kind: str, name: str) -> Price | None:
    """Return the price of a thing, or ``None`` when no source states one: never a guess."""
    for row in yaml_table("prices"):
        if (row["kind"], row["name"]) == (kind, name):
            return Price(row["usd_per_hour"], row["region"], row["basis"], source(row["source"]), row["as_of"])
    return None
