"""What the serving software itself accepts and exports, by version: flags, configuration keys, variables, metric names.

The JSON files in ``data/engines`` are made by ``python -m scripts.engine_lists`` from published wheels. Of software that
publishes none (``data/engines/*.yaml``) the lists were taken by hand from the sources of the version that they name.
"""

import difflib
import json
from dataclasses import dataclass, field
from functools import cache
from typing import Any, Final, Literal

from dpd.catalog.tables import DATA, yaml_table

FOLDER: Final = DATA / "engines"
SOFTWARE: Final = {
    "vllm": "vLLM", "lmcache": "LMCache", "vllm-router": "vllm-router", "llm-d-picker": "llm-d's endpoint picker",
    "llm-d-sidecar": "llm-d's sidecar", "nixl": "NIXL",
    "dcgm-exporter": "NVIDIA's GPU exporter", "kube-state-metrics": "kube-state-metrics", "efa-counters": "the EFA exporter",
}  # fmt: skip
"""What the catalog has lists of, and how it is called in a sentence."""
Entry = dict[str, Any]


@cache
def version_key(version: str) -> tuple[int, ...]:
    """A version as numbers, to be compared. Anything that is no number counts as 0."""
    return tuple(int(part) if part.isdecimal() else 0 for part in version.removeprefix("v").split("."))


@dataclass(frozen=True, slots=True)
class Flag:
    """What one flag, or one field of a JSON value, takes.

    ``switch`` has a ``--no-`` form and no value, ``mark`` has neither, ``bool`` may have true or false behind an equals sign;
    ``size`` is a whole number that may end in k, M or G; ``config`` names the class of a JSON value. ``values`` says how many
    follow. The opposite of a ``paired`` switch is also its name with enable and disable changed.
    """

    name: str
    kind: Literal["switch", "mark", "bool", "int", "size", "float", "text", "json"] = "text"
    choices: tuple[str | int, ...] = ()
    default: Any = None
    values: Literal["one", "many", "optional"] | int = "one"
    short: tuple[str, ...] = ()
    config: str = ""
    paired: bool = False


def opposite(flag: str) -> str:
    """The name with enable and disable changed, or the name itself."""
    for one, other in (("--enable-", "--disable-"), ("--disable-", "--enable-")):
        if flag.startswith(one):
            return other + flag.removeprefix(one)
    return flag


@dataclass(frozen=True, slots=True)
class Lists:
    """The lists of one version, or with ``version`` empty of all together.

    ``exact`` is false when they are not those of the very version that was asked for: choices may then have changed.
    """

    software: str
    version: str
    exact: bool

    def table(self, table: str) -> dict[str, Entry]:
        """Names and entries of a table; empty when the software has no such table."""
        return _table(self.software, self.version, table)

    def names(self, table: str) -> frozenset[str]:
        """All names of a table."""
        return frozenset(self.table(table))

    def flag(self, name: str, table: str = "flags") -> Flag | None:
        """One flag by its long form, or ``None``."""
        entries = self.table(table)
        entry = entries[name] if name in entries else self._paired(name, table)
        if entry is None:
            return None
        given: dict[str, Any] = {
            key: tuple(value) if isinstance(value, list) and key != "default" else value for key, value in entry.items()
        }
        return Flag(name, **given)

    def _paired(self, name: str, table: str) -> Entry | None:
        entry = self.table(table).get(opposite(name))
        return entry if entry and entry.get("paired") else None

    def config(self, name: str) -> dict[str, Flag]:
        """Fields of a class that is given as JSON; empty for one that is not known."""
        found = (key for key in self.table("configs") if key.startswith(f"{name}."))
        return {key.partition(".")[2]: flag for key in found if (flag := self.flag(key, "configs"))}

    def keys(self, table: str, name: str) -> frozenset[str]:
        """Keys that a connector or a tier reads."""
        return frozenset(self.table(table).get(name, {}).get("keys", ()))

    @property
    def title(self) -> str:
        """Name and version, as in a sentence."""
        return f"{SOFTWARE[self.software]} {self.version}".rstrip()

    def advice(self, table: str, name: str) -> str:
        """What to do about a name that is not in a table: the versions that have it, a name that looks like it, or neither."""
        past = engine(self.software).since(table, name)
        came = next((version for version, there in past if there and version_key(version) > version_key(self.version)), None)
        if self.version and came:
            return f"{SOFTWARE[self.software]} has it since {came}"
        if past and not past[-1][1]:
            return f"remove it: {SOFTWARE[self.software]} dropped it in {past[-1][0]}"
        near = difflib.get_close_matches(name, sorted(self.names(table)), n=1)
        return f"did you mean {near[0]}?" if near else "remove it"

    def exports(self, series: str) -> bool:
        """Whether a series, with the endings that Prometheus adds, is of a metric family that the software exports."""
        return any(name in self.table("metrics") for name in families(series))


_ENDINGS: Final = ("_total", "_bucket", "_sum", "_count", "_created", "_info")


def families(series: str) -> tuple[str, ...]:
    """Metric families that a series may belong to: its own name, and that without an ending."""
    return (series, *(series.removesuffix(ending) for ending in _ENDINGS if series.endswith(ending)))


@dataclass(frozen=True, slots=True)
class Engine:
    """All that is known of one software. ``stamps`` say by version which file was read."""

    software: str
    source: str
    stamps: dict[str, dict[str, str]]
    histories: dict[str, dict[str, dict[str, Entry | None]]] = field(repr=False)

    def tables(self, version: str) -> dict[str, dict[str, Entry]]:
        """The lists of one of the known versions."""
        return {table: self.table(version, table) for table in self.histories}

    def table(self, version: str, table: str) -> dict[str, Entry]:
        """One table of a version; with an empty version every name that any has, with its newest entry."""
        wanted = version_key(version)
        found = {}
        for name, history in self.histories.get(table, {}).items():
            entries = [entry for since, entry in history.items() if (version_key(since) <= wanted if version else entry is not None)]
            if entries and entries[-1] is not None:
                found[name] = entries[-1]
        return found

    def since(self, table: str, name: str) -> tuple[tuple[str, bool], ...]:
        """In which versions a name came (true) and went (false), as far as they are known; oldest first."""
        return tuple((version, entry is not None) for version, entry in self.histories.get(table, {}).get(name, {}).items())


@cache
def engine(software: str) -> Engine:
    """Everything about a software. Raises ``KeyError`` for one that the catalog has no file of."""
    if software not in SOFTWARE:
        raise KeyError(software)
    path = FOLDER / f"{software}.json"
    if path.exists():
        content = json.loads(path.read_text(encoding="utf-8"))
        stamps = content.pop("versions")
        return Engine(content.pop("software"), content.pop("source"), stamps, content)
    return _by_hand(software, dict(yaml_table(f"engines/{software}")))


def _by_hand(software: str, content: dict[str, Any]) -> Engine:
    stamp, version = content.pop("stamp"), str(content.pop("version"))
    histories: dict[str, dict[str, dict[str, Entry | None]]] = {
        table: {name: {version: entry or {}} for name, entry in _named(names)} for table, names in content.items()
    }
    return Engine(software, stamp["source"], {version: {key: str(value) for key, value in stamp.items()}}, histories)


def _named(names: list[str] | dict[str, Entry]) -> list[tuple[str, Entry]]:
    return [(name, {}) for name in names] if isinstance(names, list) else list(names.items())


@cache
def _table(software: str, version: str, table: str) -> dict[str, Entry]:
    return engine(software).table(version, table)


def any_version(software: str) -> Lists:
    """Every name that any known version has, with its newest entry: for software whose version nobody has stated."""
    return Lists(software, "", exact=False)


@cache
def lists(software: str, version: str = "") -> Lists:
    """The lists of a version, or of the nearest that is known: the newest before it, else the oldest. Without one: the newest."""
    known = engine(software)
    order = sorted(known.stamps, key=version_key)
    wanted = version_key(version) if version else version_key(order[-1])
    older = [item for item in order if version_key(item) <= wanted]
    chosen = older[-1] if older else order[0]
    return Lists(software, chosen, exact=version_key(chosen) == wanted)
