"""Prices of HyperPod nodes from the AWS price list, into a dated file beside the environments."""

import json
import math
from collections.abc import Iterable, Iterator
from datetime import date
from pathlib import Path
from typing import Any, Final

import yaml

from dpd.catalog.prices import Listed, Purchase, fetched, given

FOLDER: Final = "prices"
_SERVICE: Final = "AmazonSageMaker"
_MARK: Final = "Cluster:"
"""HyperPod's usage types are `USE1-Cluster:ml.p4d.24xlarge`; a training plan's end with `-Reserved`."""
_RESERVED: Final = "-Reserved"
_API_REGION: Final = "us-east-1"


class PricesError(Exception):
    """Prices that cannot be had, in words for the user."""


def path_of(region: str) -> Path:
    """Where the fetched prices of a Region are."""
    return Path(FOLDER) / f"{region}.yaml"


def book(region: str, said: Iterable[str], *, today: date) -> tuple[Listed, ...]:
    """Prices that were given on the command line, then fetched ones. Raises ``ValueError`` for a text or a file that is none."""
    listed = [one for text in said for one in given(text, today=today)]
    path = path_of(region)
    if path.is_file():
        try:
            listed += fetched(yaml.safe_load(path.read_text(encoding="utf-8")))
        except (ValueError, yaml.YAMLError, OSError):
            raise ValueError(f"{path} is no price file; write it again with --refresh-prices, or remove it") from None
    return tuple(listed)


def fetch(client: Any, region: str, types: Iterable[str]) -> Iterator[tuple[str, Purchase, float]]:
    """Type, way to buy and dollars an hour of HyperPod nodes in a Region, as AWS's price list states them."""
    wanted = set(types)
    filters = [
        {"Type": "TERM_MATCH", "Field": "regionCode", "Value": region},
        {"Type": "TERM_MATCH", "Field": "component", "Value": "Cluster"},
    ]
    for page in client.get_paginator("get_products").paginate(ServiceCode=_SERVICE, Filters=filters):
        for text in page["PriceList"]:
            product = json.loads(text)
            _, mark, name = product.get("product", {}).get("attributes", {}).get("usagetype", "").partition(_MARK)
            purchase: Purchase = "training_plan" if name.endswith(_RESERVED) else "on_demand"
            usd = _on_demand(product)
            if mark and usd is not None and name.removesuffix(_RESERVED) in wanted:
                yield name.removesuffix(_RESERVED), purchase, usd


def _on_demand(product: dict[str, Any]) -> float | None:
    for term in product.get("terms", {}).get("OnDemand", {}).values():
        for dimension in term.get("priceDimensions", {}).values():
            try:
                usd = float(dimension["pricePerUnit"]["USD"])
            except (KeyError, TypeError, ValueError):
                continue
            if math.isfinite(usd) and usd > 0:
                return usd
    return None


def document(region: str, found: Iterable[tuple[str, Purchase, float]], *, today: date) -> str:
    """The file of fetched prices."""
    rows = [{"name": name, "purchase": purchase, "usd_per_hour": usd} for name, purchase, usd in sorted(set(found))]
    head = "# Written by `dpd plan --refresh-prices` from the AWS Price List API (AmazonSageMaker). Remove it to plan without.\n"
    return head + yaml.safe_dump({"as_of": today, "region": region, "prices": rows}, sort_keys=False)


def refreshed(region: str, types: Iterable[str], *, profile: str | None, today: date) -> str:
    """Ask AWS and return the file's text. Raises ``PricesError``."""
    try:
        import botocore.session  # noqa: PLC0415
        from botocore.config import Config  # noqa: PLC0415
        from botocore.exceptions import BotoCoreError, ClientError  # noqa: PLC0415
    except ImportError:
        raise PricesError("botocore is not installed. Install it with: pip install 'hyperpod-dpd[doctor]'") from None
    wanted = sorted(set(types))
    try:
        session = botocore.session.get_session()
        if profile:
            session.set_config_variable("profile", profile)
        config = Config(connect_timeout=5, read_timeout=20, retries={"total_max_attempts": 2})
        client = session.create_client("pricing", region_name=_API_REGION, config=config)
        found = list(fetch(client, region, wanted))
    except ClientError as error:
        raise PricesError(
            f"the price list refused ({error.response.get('Error', {}).get('Code', 'an error')}); it needs pricing:GetProducts"
        ) from None
    except BotoCoreError as error:
        raise PricesError(f"the price list cannot be asked ({type(error).__name__})") from None
    if not found:
        raise PricesError(f"the price list states no HyperPod price of {', '.join(wanted)} in {region}")
    return document(region, found, today=today)
