"""A picture of an environment, drawn from the model and not from a template: where nodes are, and which way a prompt and its KV go."""

from collections.abc import Mapping
from dataclasses import dataclass
from html import escape
from typing import Any, Final, Literal

Mark = Literal["", "new", "changed", "gone"]

_WIDTH: Final = 1120
_LANE: Final = 106
_CHIP: Final = 34
_PAD: Final = 22
_LETTER: Final = 7.3
"""Width of a letter at the size of labels, in pixels; a little more than most fonts need."""


@dataclass(frozen=True, slots=True)
class Marks:
    """What changed, by name of group and of endpoint."""

    groups: Mapping[str, Mark]
    endpoints: Mapping[str, Mark]


def topology(summary: Mapping[str, Any], marks: Marks) -> str:
    """The picture as SVG. Colours come from the page's style sheet. ``summary`` is what a synthesis writes of an environment."""
    model = summary["topology"]
    groups = [*model["groups"], *({"name": name, "instance_type": "", "count": 0} for name, mark in marks.groups.items() if mark == "gone")]
    chips, chips_height = _chips(groups, marks.groups, left=300, right=_WIDTH - 2 * _PAD, top=104)
    top = 104 + chips_height + 10
    lanes = [
        _lane(endpoint, marks.endpoints.get(endpoint["name"], ""), top + number * _LANE)
        for number, endpoint in enumerate(model["endpoints"])
    ]
    bottom = top + len(lanes) * _LANE + 8
    height = bottom + 62
    said = _described(summary)
    return "".join(
        (
            f'<svg class="topology" viewBox="0 0 {_WIDTH} {height}" role="img" aria-label="{escape(said)}">',
            f"<defs>{_tip('tip', 7)}{_tip('kv-tip', 4)}</defs>",
            _box(8, 8, _WIDTH - 16, bottom + 8, "vpc"),
            _text(26, 34, f"VPC {model['vpc']}", "title"),
            _text(_WIDTH - 26, 34, f"{summary['account']} · {summary['region']}", "soft end"),
            *_control_plane(model, bottom),
            _box(286, 52, _WIDTH - 286 - _PAD, bottom - 52, "zone"),
            _text(304, 80, f"{model['gpu_availability_zone']}: one subnet for all nodes", "title"),
            *chips,
            *lanes,
            _text(26, height - 18, _storage(model), "soft"),
            "</svg>",
        )
    )


def _control_plane(model: Mapping[str, Any], bottom: int) -> list[str]:
    zones = " and ".join(model["control_plane_availability_zones"]) or "control-plane AZs"
    return [
        _box(24, 52, 248, bottom - 52, "zone"),
        _text(40, 80, zones, "title"),
        _box(40, 98, 216, 50, "node"),
        _text(148, 128, "EKS control plane", "middle"),
        _box(40, 160, 216, 50, "node"),
        _text(148, 190, "health gate", "middle"),
    ]


def _chips(groups: list[dict[str, Any]], marks: Mapping[str, Mark], *, left: int, right: int, top: int) -> tuple[list[str], int]:
    """Instance groups, as many in a row as fit."""
    parts, x, y = [], left, top
    for group in groups:
        mark = marks.get(group["name"], "")
        size = f" · {group['count']} x {group['instance_type']}" if group["instance_type"] else ""
        label = f"{group['name']}{size}{f' · {mark}' if mark else ''}"
        width = int(len(label) * _LETTER) + 24
        if x > left and x + width > right:
            x, y = left, y + _CHIP + 8
        parts += [_box(x, y, width, _CHIP, f"chip {mark}".strip()), _text(x + 12, y + 22, label, f"label {mark}".strip())]
        x += width + 10
    return parts, y + _CHIP - top


def _lane(endpoint: Mapping[str, Any], mark: Mark, top: int) -> str:
    """An endpoint: router, prefill role, KV path, decode role."""
    roles, middle, low = endpoint["roles"], top + 42, top + 78
    name = f"{endpoint['name']}{f' · {mark}' if mark else ''}"
    prefill, decode = (_role(kind, roles[kind]) for kind in ("prefill", "decode"))
    threshold = endpoint["threshold_tokens"]
    short = (
        f'<path class="wire short" marker-end="url(#tip)" d="M398 {low} v12 H 990 v-10"/>',
        _text(557, low + 16, f"shorter than {threshold:,} tokens", "soft small middle over"),
    )
    return "".join(
        (
            f'<g class="lane {mark}">',
            _box(304, top + 4, 188, 74, "node"),
            _text(316, middle - 14, _cut(name, 22), f"strong {mark}".strip()),
            _text(316, middle + 6, f"router, {endpoint['backend']}", "soft small"),
            _text(316, middle + 24, _cut(str(endpoint["model"]), 25), "soft small"),
            f'<path class="wire" marker-end="url(#tip)" d="M492 {middle} H 624"/>',
            _text(557, middle - 8, "long prompts" if threshold else "every prompt", "soft small middle"),
            _box(626, top + 4, 172, 74, "pod"),
            *_lines(638, middle, prefill),
            f'<path class="kv" marker-end="url(#kv-tip)" d="M798 {middle} H 896"/>',
            _text(848, middle - 12, "KV over EFA", "kv-label small middle"),
            _box(902, top + 4, 174, 74, "pod"),
            *_lines(914, middle, decode),
            *(short if threshold else ()),
            "</g>",
        )
    )


def _role(kind: str, role: Mapping[str, Any]) -> tuple[str, str, str]:
    return kind, f"{role['replicas']} x TP{role['tensor_parallel']}", _cut(f"on {role['group']}", 22)


def _lines(x: int, middle: int, lines: tuple[str, str, str]) -> tuple[str, ...]:
    styles = ("strong", "", "soft small")
    return tuple(_text(x, middle - 14 + 20 * number, line, style) for number, (line, style) in enumerate(zip(lines, styles, strict=True)))


def _storage(model: Mapping[str, Any]) -> str:
    return "Weights: model bucket" + (", and Lustre in the same subnet" if model["lustre"] else "")


def _described(summary: Mapping[str, Any]) -> str:
    model = summary["topology"]
    groups = ", ".join(f"{group['name']} ({group['count']} x {group['instance_type']})" for group in model["groups"])
    endpoints = ", ".join(endpoint["name"] for endpoint in model["endpoints"])
    return f"{summary['environment']}: groups {groups} in {model['gpu_availability_zone']}; endpoints {endpoints}"


def _tip(name: str, size: int) -> str:
    return (
        f'<marker id="{name}" viewBox="0 0 10 10" refX="8" refY="5" markerWidth="{size}" markerHeight="{size}" orient="auto">'
        f'<path d="M0 0 10 5 0 10z" class="{name}"/></marker>'
    )


def _box(x: int, y: int, width: int, height: int, style: str) -> str:
    return f'<rect class="{style}" x="{x}" y="{y}" width="{width}" height="{height}" rx="10"/>'


def _text(x: int, y: int, text: str, style: str) -> str:
    return f'<text class="{style}" x="{x}" y="{y}">{escape(text)}</text>'


def _cut(text: str, most: int) -> str:
    return text if len(text) <= most else f"{text[: most - 1]}…"
