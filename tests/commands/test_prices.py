"""Prices from AWS's price list, against a stub of its API."""

import json
from datetime import date
from typing import Any

import botocore.session
import pytest
import yaml
from botocore.stub import Stubber

from commands import prices
from commands.prices import PricesError, document, fetch, refreshed
from dpd.catalog.prices import PriceBook, fetched
from tests.commands.support import Dpd
from tests.support import EXAMPLE, ROOT, TODAY


def product(usage: str, usd: str | None, **terms: Any) -> str:
    price = {"priceDimensions": {"a": {"unit": "Hrs", "pricePerUnit": {"USD": usd} if usd is not None else {"CNY": "1"}}}}
    attributes = {"usagetype": usage, "component": "Cluster", "regionCode": "us-east-2"}
    return json.dumps({"product": {"attributes": attributes}, "terms": terms or {"OnDemand": {"t": price}}})


PAGES = [
    [product("USE2-Cluster:ml.p5.48xlarge", "63.296"), product("USE2-Cluster:ml.p5.48xlarge-Reserved", "31.5")],
    [
        product("USE2-Cluster:ml.c5.4xlarge", "0.816"), product("USE2-Cluster:ml.p4d.24xlarge", "25.9"),
        product("USE2-Host:ml.p5.48xlarge", "1"), product("USE2-Cluster:ml.p5.48xlarge", "0"),
        product("USE2-Cluster:ml.p5.48xlarge", None), product("USE2-Cluster:ml.p5.48xlarge", "free"),
        product("USE2-Cluster:ml.p5.48xlarge", "9", Reserved={}), "{}",
    ],
]  # fmt: skip
FILTERS = [
    {"Type": "TERM_MATCH", "Field": "regionCode", "Value": "us-east-2"}, {"Type": "TERM_MATCH", "Field": "component", "Value": "Cluster"},
]  # fmt: skip


def client() -> Any:
    session = botocore.session.get_session()
    session.set_credentials("AKIAEXAMPLE", "secret")
    return session.create_client("pricing", region_name="us-east-1")


@pytest.fixture
def price_list(monkeypatch: pytest.MonkeyPatch) -> Stubber:
    asked = client()
    stub = Stubber(asked)
    monkeypatch.setattr(botocore.session.Session, "create_client", lambda *_arguments, **_settings: asked)
    stub.activate()
    return stub


def answer(stub: Stubber) -> None:
    asked = {"ServiceCode": "AmazonSageMaker", "Filters": FILTERS}
    stub.add_response("get_products", {"PriceList": PAGES[0], "NextToken": "more"}, asked)
    stub.add_response("get_products", {"PriceList": PAGES[1]}, {**asked, "NextToken": "more"})


def test_only_hyperpod_prices_of_the_wanted_types(price_list: Stubber) -> None:
    answer(price_list)
    found = list(fetch(price_list.client, "us-east-2", ["ml.p5.48xlarge", "ml.c5.4xlarge"]))
    assert found == [
        ("ml.p5.48xlarge", "on_demand", 63.296), ("ml.p5.48xlarge", "training_plan", 31.5), ("ml.c5.4xlarge", "on_demand", 0.816),
    ]  # fmt: skip
    price_list.assert_no_pending_responses()


def test_the_file_is_dated_and_read_back() -> None:
    text = document("us-east-2", [("ml.p5.48xlarge", "on_demand", 63.296), ("ml.p5.48xlarge", "training_plan", 31.5)], today=TODAY)
    book = PriceBook(fetched(yaml.safe_load(text)))
    for purchase, usd in (("on_demand", 63.296), ("training_plan", 31.5)):
        price = book.find("instance", "ml.p5.48xlarge", purchase)  # type: ignore[arg-type]
        assert price is not None
        assert (price.usd_per_hour, price.as_of, price.region) == (usd, TODAY, "us-east-2")


def test_a_plan_refreshes_and_uses_them(price_list: Stubber, dpd: Dpd, tmp_path: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    answer(price_list)
    found = dpd("plan", EXAMPLE, "--traffic", ROOT / "docs" / "traffic.yaml", "--closed-form", "--refresh-prices")
    assert "Prices of 2026-11-29 are in prices/us-east-2.yaml" in found.err
    assert "63.30 USD/h (HyperPod; us-east-2, 2026-11-29, https://aws.amazon.com/sagemaker/ai/pricing/)" in found.out
    assert prices.path_of("us-east-2").is_file()


def test_refusals_are_said_and_nothing_is_written(price_list: Stubber, dpd: Dpd, tmp_path: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    price_list.add_client_error("get_products", "AccessDeniedException")
    found = dpd("plan", EXAMPLE, "--traffic", ROOT / "docs" / "traffic.yaml", "--refresh-prices")
    assert found.code == 1
    assert "AccessDeniedException" in found.err
    assert "pricing:GetProducts" in found.err
    assert not list(tmp_path.iterdir())


def test_no_price_is_no_file(price_list: Stubber) -> None:
    price_list.add_response("get_products", {"PriceList": []})
    with pytest.raises(PricesError, match=r"states no HyperPod price of ml\.p5\.48xlarge in us-east-2"):
        refreshed("us-east-2", ["ml.p5.48xlarge"], profile=None, today=date(2026, 11, 29))
