"""The page as a browser shows it: its text, its width, and that it asks nobody for anything."""

import re
import shutil
import subprocess
from html import unescape
from pathlib import Path
from typing import Final

import pytest

from dpd.review.compare import compare
from dpd.review.library import Library
from pages.review import review_page
from tests.review.conftest import Synthesize
from tests.review.test_recorded import SPARE, ZONE

BROWSER: Final = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
FLAGS: Final = (
    "--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-background-networking",
    "--disable-component-update", "--disable-sync", "--hide-scrollbars",
)  # fmt: skip
PNG: Final = b"\x89PNG\r\n"

pytestmark = pytest.mark.skipif(BROWSER is None, reason="no Chromium on this machine")


def browse(page: Path, profile: Path, *flags: str) -> str:
    command = [str(BROWSER), *FLAGS, f"--user-data-dir={profile}", *flags, page.as_uri()]
    return subprocess.run(command, capture_output=True, text=True, check=True, timeout=120).stdout


@pytest.fixture(scope="module")
def page(assembly: Synthesize, library: Library, tmp_path_factory: pytest.TempPathFactory) -> Path:
    file = tmp_path_factory.mktemp("page") / "review.html"
    file.write_text(review_page(compare(assembly(SPARE), assembly(ZONE), library), before="main", after="now"), encoding="utf-8")
    return file


def test_a_browser_reads_what_a_reviewer_must_see_first(page: Path, tmp_path: Path) -> None:
    shown = unescape(re.sub(r"<[^>]+>", "\n", browse(page, tmp_path, "--dump-dom").split("</style>")[-1]))
    lines = [line.strip() for line in shown.splitlines() if line.strip()]
    order = ["Dangerous changes", "Look at these first", "dev", "Health gate", "AWS resources"]
    places = [lines.index(text) for text in order]
    assert places == sorted(places)
    for text in ("replaced", "instance group removed", "availability zone changed", "KV over EFA", "spare · gone", "prefill", "decode"):
        assert text in lines


@pytest.mark.parametrize("width", [1280, 420])
def test_a_browser_draws_it(page: Path, tmp_path: Path, width: int) -> None:
    picture = tmp_path / "page.png"
    browse(page, tmp_path / "profile", f"--window-size={width},1400", f"--screenshot={picture}")
    content = picture.read_bytes()
    assert content.startswith(PNG)
    assert int.from_bytes(content[16:20], "big") == width
    assert len(content) > 40_000, "an empty page compresses to almost nothing"
