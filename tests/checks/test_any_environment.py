"""Whatever a legal file says, the rules about hardware and memory answer, and every answer can be acted upon."""

from hypothesis import given, settings
from hypothesis import strategies as st

from dpd.catalog import instances, models
from dpd.finding import in_order
from tests.support import findings

FAMILIES = ("INS", "PLC", "ADR", "CAP", "MEM", "PAR")
types = st.sampled_from((*instances.types()[:60], "ml.none.large", "p5.48xlarge"))
counts = st.integers(0, 40)
sizes = st.sampled_from((1, 2, 3, 4, 5, 8, 16, 64))
zones = st.sampled_from(("use2-az1", "use2-az2", "use1-az3", "xx1-az1"))
networks = st.sampled_from(("10.1.0.0/16", "10.192.0.0/16", "10.192.128.0/17", "172.16.0.0/20", "10.0.0.0/28", "169.254.0.0/16"))


def role(name: str) -> st.SearchStrategy[dict[str, object]]:
    at = f"endpoints[0].{name}"
    return st.fixed_dictionaries(
        {
            f"{at}.group": st.sampled_from(("system", "prefill", "decode", "nowhere")),
            f"{at}.replicas": st.integers(1, 50),
            f"{at}.tensor_parallel": sizes,
            f"{at}.max_surge": st.integers(0, 2),
            f"{at}.gpu_memory_utilization": st.floats(0.01, 0.99),
        },
        optional={
            f"{at}.efa_devices": st.integers(0, 64),
            f"{at}.cpus": st.integers(1, 448),
            f"{at}.memory_gib": st.integers(1, 4096),
            f"{at}.autoscaling": st.builds(lambda low, more: {"min_replicas": low, "max_replicas": low + more}, counts, st.integers(1, 40)),
        },
    )


changes = st.builds(
    lambda *parts: {key: value for part in parts for key, value in part.items()},
    role("prefill"),
    role("decode"),
    st.fixed_dictionaries(
        {
            "cluster.groups.system.instance_type": types,
            "cluster.groups.prefill.instance_type": types,
            "cluster.groups.decode.instance_type": types,
            "cluster.groups.prefill.count": counts,
            "cluster.groups.decode.count": counts,
            "endpoints[0].model.catalog": st.sampled_from(models.names()),
            "endpoints[0].model.max_model_len": st.integers(1, 300_000),
            "endpoints[0].routing.threshold_tokens": st.integers(0, 300_000),
            "endpoints[0].kv.buffer_gib": st.integers(1, 200),
            "network.gpu_subnet.availability_zone_id": zones,
            "network.gpu_subnet.cidr": networks,
            "network.vpc_cidr": networks,
        }
    ),
)


@settings(max_examples=100)
@given(changes)
def test_every_legal_file_is_answered(changed: dict[str, object]) -> None:
    found = [finding for finding in findings(changed) if finding.id.startswith(FAMILIES)]
    assert len({(it.id, it.path, it.message) for it in found}) == len(found), "nothing is said twice"
    for finding in found:
        assert finding.message
        assert finding.fix
        assert finding.link.startswith("https://")
        assert finding.path
    assert in_order(found) == in_order(list(reversed(found)))
