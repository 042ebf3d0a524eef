"""Cost at rest: no price without its date, and no guess where none is known."""

from datetime import date

import pytest

from dpd.catalog.prices import PriceBook, fetched, given
from dpd.sizing.cost import at_rest, token_cost
from tests.support import REMOVE, TODAY, environment


def test_a_price_is_never_shown_without_its_day_and_place() -> None:
    items = at_rest(environment())
    for item in items:
        if item.price is None:
            assert str(item).endswith("price unknown")
            assert item.usd_per_hour is None
        else:
            assert item.price.as_of.isoformat() in str(item)
            assert item.price.source.url in str(item)
            assert item.price.basis in str(item)


def test_nodes_cost_their_number() -> None:
    by_name = {item.what: item for item in at_rest(environment({"cluster.groups.prefill.count": 3}))}
    assert by_name["group prefill"].usd_per_hour == 3 * 55.04
    assert by_name["group system"].usd_per_hour is None
    assert by_name["EKS control plane"].usd_per_hour == 0.10


def test_a_reserved_or_spot_node_has_no_known_price() -> None:
    by_name = {item.what: item for item in at_rest(environment({"cluster.groups.decode.capacity": "spot"}))}
    assert by_name["group decode"].price is None


def test_what_is_not_made_is_not_billed() -> None:
    lean = {
        "storage.lustre": REMOVE, "endpoints": [], "network.egress.nat_gateways": 0,
        "cluster.groups.prefill.count": 0, "cluster.groups.decode.count": 0,
    }  # fmt: skip
    assert [item.what for item in at_rest(environment(lean))] == ["group system", "EKS control plane"]
    assert "interface endpoints" in {item.what for item in at_rest(environment({"network.egress.interface_endpoints": True}))}


def test_dollars_of_a_million_tokens() -> None:
    """Two nodes at 55.04, 3.98 requests/s of 8,000 and 256 tokens: 0.93 dollars blended, 30.0 for answers alone."""
    cost = token_cost(110.08, rate_per_second=3.98, input_tokens=8000, output_tokens=256)
    assert cost.blended == pytest.approx(0.93, abs=0.005)
    assert cost.output == pytest.approx(30.0, abs=0.05)
    assert cost.input == pytest.approx(0.96, abs=0.005)
    assert token_cost(1, rate_per_second=0, input_tokens=1, output_tokens=1).blended == float("inf")


def test_what_is_given_wins_over_what_is_fetched_and_listed() -> None:
    day = date(2026, 11, 1)
    document = {"as_of": day, "region": "us-east-2", "prices": [{"name": "ml.p5.48xlarge", "purchase": "on_demand", "usd_per_hour": 61.0}]}
    fetched_book, given_book = PriceBook(fetched(document)), PriceBook((*given("ml.p5.48xlarge=63.3", today=TODAY), *fetched(document)))
    prices = [book.find("instance", "ml.p5.48xlarge") for book in (PriceBook(), fetched_book, given_book)]
    assert [price.usd_per_hour for price in prices if price] == [55.04, 61.0, 63.3]
    assert str(prices[1]) == "61.00 USD/h (HyperPod; us-east-2, 2026-11-01, https://aws.amazon.com/sagemaker/ai/pricing/)"
    assert TODAY.isoformat() in str(prices[2])


@pytest.mark.parametrize(
    ("capacity", "text", "usd"),
    [
        ("spot", "ml.p5.48xlarge:spot=21", 21.0),
        ("spot", "ml.p5.48xlarge=63.3", 63.3),
        ("spot", "ml.p5.48xlarge:on_demand=63.3", None),
        ("on_demand", "ml.p5.48xlarge:spot=21", 55.04),
        (
            {"training_plan_arn": "arn:aws:sagemaker:us-east-2:111122223333:training-plan/a", "availability_zone_id": "use2-az1"},
            "ml.p5.48xlarge:training_plan=40",
            40.0,
        ),
    ],
)
def test_every_way_to_buy_has_its_price(capacity: object, text: str, usd: float | None) -> None:
    items = at_rest(environment({"cluster.groups.decode.capacity": capacity}), PriceBook(given(text, today=TODAY)))
    (decode,) = [item for item in items if item.what == "group decode"]
    assert decode.usd_per_hour == usd


@pytest.mark.parametrize("text", ["ml.p5.48xlarge", "=3", "ml.p5.48xlarge=x", "ml.p5.48xlarge=-1", "ml.p5.48xlarge=nan", "ml.p5:sale=3"])
def test_what_is_no_price(text: str) -> None:
    with pytest.raises(ValueError, match="write it as"):
        given(text, today=TODAY)


def test_the_small_items_can_be_given_too() -> None:
    said = ("nat_gateway=0.045", "load_balancer=0.0225", "persistent_2_500=0.0005")
    book = PriceBook([one for text in said for one in given(text, today=TODAY)])
    by_name = {item.what: item.usd_per_hour for item in at_rest(environment(), book)}
    assert by_name["NAT gateways"] == 0.045
    assert by_name["load balancers"] == 0.0225
    assert by_name["Lustre"] == pytest.approx(4800 * 0.0005)


def test_a_name_without_a_price_is_not_taken_silently() -> None:
    with pytest.raises(ValueError, match="nothing that has a price here"):
        given("ml.p5.48xlrage=60", today=TODAY)


@pytest.mark.parametrize(
    "document", [None, {}, {"as_of": "today", "region": "us-east-2", "prices": []}, {"as_of": TODAY, "region": "r", "prices": [1]}]
)
def test_what_is_no_price_file(document: object) -> None:
    with pytest.raises(ValueError, match="no price file"):
        fetched(document)
