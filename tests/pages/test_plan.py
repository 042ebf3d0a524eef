"""The page needs nothing else, says the same to everybody, and never runs what a user wrote."""

import re
from html.parser import HTMLParser
from itertools import pairwise
from pathlib import Path
from typing import Final

import pytest

pytest.importorskip("matplotlib", reason="the extra pages is not installed (make planner)")

from pages.figures import DARK, LIGHT, Picture
from tests.pages.made import page, pictures

CSS: Final = (Path(__file__).parents[2] / "pages" / "page.css").read_text(encoding="utf-8")
VOID: Final = {"meta", "br", "hr", "img", "link", "input"}


class Reader(HTMLParser):
    """Collects tags, attributes and text, and fails where tags do not close."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.text = ""
        self._open: list[str] = []
        self.feed(text)
        self.close()
        assert not self._open

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))
        if tag not in VOID:
            self._open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))

    def handle_endtag(self, tag: str) -> None:
        assert self._open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.text += data

    def every(self, attribute: str) -> list[str]:
        return [value for _, attributes in self.tags if (value := attributes.get(attribute)) is not None]


@pytest.fixture(scope="module")
def html() -> str:
    return page().html()


@pytest.fixture(scope="module")
def read(html: str) -> Reader:
    return Reader(html)


def test_nothing_is_fetched(html: str, read: Reader) -> None:
    assert "default-src 'none'" in html
    assert not {tag for tag, _ in read.tags} & {"script", "link", "img", "iframe", "object", "embed", "audio", "video", "base", "form"}
    assert "@import" not in html
    assert not re.search(r"url\((?!#)", html)
    assert read.every("src") == []
    assert all(target.startswith(("#", "https://")) for target in read.every("href"))
    assert [attributes for tag, attributes in read.tags if tag == "a"] == [{"href": "https://example.org/a?b=1&c=2", "rel": "noreferrer"}]
    assert not [name for _, attributes in read.tags for name in attributes if name.startswith("on")]


def test_ids_are_unique_and_what_points_to_them_finds_them(html: str, read: Reader) -> None:
    ids = read.every("id")
    assert len(ids) == len(set(ids))
    targets = {target.removeprefix("#") for target in read.every("href") if target.startswith("#")} | set(
        re.findall(r"url\(#([^)]+)\)", html)
    )
    targets |= {name for names in read.every("aria-labelledby") for name in names.split()}
    assert targets <= set(ids)


def test_every_picture_has_words_and_numbers(read: Reader) -> None:
    drawn = [attributes for tag, attributes in read.tags if tag == "svg"]
    assert len(drawn) == len(pictures())
    assert all(attributes["role"] == "img" and attributes["aria-labelledby"] for attributes in drawn)
    for picture in pictures("2 x TP8 llama-70b"):
        assert picture.title in read.text
        assert picture.says in read.text
        assert all(cell in read.text for row in picture.rows for cell in row)


def test_it_says_everything(read: Reader) -> None:
    for said in (
        "Plan for llama-70b in prod", "Disaggregate", "Because of llama-70b.", "holds objective llama-70b", "may miss objective 2 s",
        "misses objective 2 s", "fewer requests of llama-70b", "110 USD/h", "+replicas: 3",
        "Measured on llama-70b.", "Written by dpd plan.",
    ):  # fmt: skip
        assert said in read.text


def test_headings_go_down_one_at_a_time(read: Reader) -> None:
    levels = [int(tag[1]) for tag, _ in read.tags if re.fullmatch("h[1-6]", tag)]
    assert levels[0] == 1
    assert levels.count(1) == 1
    assert all(after <= before + 1 for before, after in pairwise(levels))


EVIL: Final = "<script>alert(1)</script>\"'&amp;</title></style></svg>$x^2$"


def test_what_a_user_wrote_is_text() -> None:
    found = Reader(page(EVIL).html())
    assert "script" not in {tag for tag, _ in found.tags}
    assert found.text.count("alert(1)") > 10
    assert "&amp;" in found.text


def test_the_same_plan_is_the_same_bytes(html: str) -> None:
    assert page().html() == html
    assert page().pngs() == page().pngs()


def test_pictures_are_pngs_as_well() -> None:
    found = page().pngs()
    assert set(found) == {"ttft.png", "itl.png", "goodput.png", "threshold.png", "link.png", "memory.png"}
    assert all(content.startswith(b"\x89PNG\r\n\x1a\n") and len(content) > 5_000 for content in found.values())


def schemes() -> dict[str, dict[str, str]]:
    light, dark = re.findall(r":root \{(.*?)\n\s*\}", CSS, flags=re.DOTALL)[:2]
    return {name: dict(re.findall(r"--([\w-]+): (#[0-9a-f]{6})", text)) for name, text in (("light", light), ("dark", dark))}


def test_light_and_dark_name_the_same_colours(html: str) -> None:
    both = schemes()
    assert both["light"].keys() == both["dark"].keys()
    assert set(re.findall(r"var\(--([\w-]+)\)", html)) <= both["light"].keys() | {"font", "mono", "tone", "tone-paper"}
    assert both["light"].items() >= LIGHT.items()
    assert both["dark"].items() >= DARK.items()


def luminance(colour: str) -> float:
    channels = [int(colour[at : at + 2], 16) / 255 for at in (1, 3, 5)]
    red, green, blue = (one / 12.92 if one <= 0.04045 else ((one + 0.055) / 1.055) ** 2.4 for one in channels)
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue


def contrast(one: str, other: str) -> float:
    low, high = sorted((luminance(one), luminance(other)))
    return (high + 0.05) / (low + 0.05)


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize(
    ("text", "behind", "least"),
    [
        *((text, behind, 4.5) for text in ("ink", "soft") for behind in ("paper", "page")),
        *((f"{tone}{end}", f"{tone}-paper", 4.5) for tone in ("yes", "no", "tune", "none") for end in ("",)),
        *(("ink", f"{tone}-paper", 4.5) for tone in ("yes", "no", "tune", "none")),
        *((text, "paper", 4.5) for text in ("yes", "tune", "goal", "b")),
        *((line, "paper", 3.0) for line in "abcde"),
        *(("paper", part, 4.5) for part in "bda"),
    ],
)  # fmt: skip
def test_everything_can_be_read(scheme: str, text: str, behind: str, least: float) -> None:
    """Contrast as the Web Content Accessibility Guidelines ask for: 4.5 for text, 3 for lines."""
    colours = schemes()[scheme]
    assert contrast(colours[text], colours[behind]) >= least


def by_name(name: str) -> Picture:
    return next(picture for picture in pictures() if picture.name == name)


def test_a_layout_that_does_not_keep_up_is_said_to() -> None:
    assert ("3P:1D TP4, threshold 512", "4", "queue grows") in by_name("ttft").rows


def test_colours_follow_the_page() -> None:
    for picture in pictures():
        text = picture.svg()
        assert not re.search(r"(?:fill|stroke): #(?!000000|ffffff)[0-9a-f]{6}", text), picture.name
        assert "DejaVu" not in text


def test_numbers_of_ranges() -> None:
    assert ("2 x TP8, chunk 8192", "2", "272 to 578 ms") in by_name("itl").rows
    assert ("512", "94%", "0.80 to 3.00 s", "16.0 to 60.0 ms", "chosen") in by_name("threshold").rows
    assert by_name("memory").rows[1] == ("decode TP4", "32.9", "4.0", "23.1", "12.0", "1.0", "80.0")
