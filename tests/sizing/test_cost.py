"""Cost at rest: no price without its date, and no guess where none is known."""

from dpd.sizing.cost import at_rest
from tests.support import REMOVE, environment


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
