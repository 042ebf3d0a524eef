"""The page about workers says what the code does."""

import re

import pytest

from dpd.backends.llmd.pod import notice_seconds
from dpd.catalog.llmd import llmd
from dpd.catalog.runtime_versions import huge_pages
from dpd.environment.names import SCRAPER_LABEL
from dpd.sizing.pod import shared_memory_gib
from dpd.sizing.startup import ENGINE_START_SECONDS, SLOWEST_LOAD_MBPS
from tests.support import ROOT

PAGE = (ROOT / "docs" / "llm-d-workers.md").read_text(encoding="utf-8")
FACTS = llmd().more["workers"]


@pytest.mark.parametrize(
    "said",
    [
        *(f"| {llmd().ports[name]} |" for name in ("server", "engine", "side_channel", "kv_events")),
        f"{SCRAPER_LABEL}=true",
        f"Blocks hold {FACTS['block_size_tokens']} tokens",
        f"From NIXL {FACTS['posting_threads']['nixl']} on",
        f"router needs {FACTS['router_notice_seconds']} s",
        f"leased for {FACTS['kv_lease_seconds']} s | {notice_seconds('prefill')} s | {notice_seconds('decode')} s |",
        f"| {FACTS['drain_seconds']['least']} s | its longest answer",
        f"from {FACTS['drain_seconds']['least']} to {FACTS['drain_seconds']['most']} s",
        f"| Exit | {FACTS['exit_seconds']} s |",
        f"{huge_pages()['node_mib']:,} MiB",
        f"at {SLOWEST_LOAD_MBPS} MB/s",
        f"has {shared_memory_gib(0)} GiB and {shared_memory_gib(1) - shared_memory_gib(0)} GiB for each GPU",
    ],
)
def test_a_number_is_that_of_the_code(said: str) -> None:
    assert said in PAGE


def test_ten_minutes_are_the_engines() -> None:
    assert ENGINE_START_SECONDS == 600


def test_links_and_files_exist() -> None:
    for target in re.findall(r"\]\(([\w./-]+)\)|`(tests/[\w./-]+)`", PAGE):
        place = ROOT / "docs" / target[0] if target[0] else ROOT / target[1]
        assert place.is_file(), target
