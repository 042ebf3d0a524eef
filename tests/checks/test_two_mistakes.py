"""Mistakes come together: any two of the tables are both answered, and every answer can be acted upon."""

from typing import Final

from hypothesis import given, reject, settings
from hypothesis import strategies as st
from pydantic import ValidationError

from dpd.checks.registry import Context, run
from tests.checks import (
    test_add_ons,
    test_buckets,
    test_cluster,
    test_groups,
    test_kubernetes,
    test_lustre,
    test_names,
    test_network,
    test_secrets,
    test_security_groups,
    test_sources,
)
from tests.checks.cases import Case
from tests.support import TODAY, environment

TABLES: Final = (
    test_add_ons, test_buckets, test_cluster, test_groups, test_kubernetes, test_lustre, test_names, test_network, test_secrets,
    test_security_groups, test_sources,
)  # fmt: skip
CASES: Final = [case for table in TABLES for case in table.CASES]


@settings(max_examples=150)
@given(st.sampled_from(CASES), st.sampled_from(CASES))
def test_two_mistakes_in_one_file(one: Case, other: Case) -> None:
    try:
        both = environment({**one.wrong, **other.wrong})
    except (ValidationError, LookupError, TypeError):
        # The two edits exclude each other, or are no legal file together.
        reject()
    found = run(both, Context(today=TODAY))
    assert found
    assert all(finding.path and finding.message and finding.fix and finding.link for finding in found)
