"""vLLM arguments as a list of flags with values."""

from collections.abc import Iterable
from dataclasses import dataclass

from dpd.catalog.vllm_flags import opposites, short_forms


@dataclass(frozen=True, slots=True)
class Argument:
    """One flag. ``flag`` is spelled as in the documentation; ``index`` is its place in the list."""

    flag: str
    values: tuple[str, ...]
    index: int

    @property
    def base(self) -> str:
        """The flag that a negation (``--no-…``, ``--disable-…``) or a dotted JSON form (``--flag.key``) is about."""
        flag = ("--" + self.flag.removeprefix("--no-") if self.flag.startswith("--no-") else self.flag).partition(".")[0]
        return opposites().get(flag, flag)


@dataclass(frozen=True, slots=True)
class Arguments:
    """A parsed list. ``strays`` are places of texts that belong to no flag, or that hold a flag and its value in one text."""

    known: tuple[Argument, ...]
    strays: tuple[int, ...]

    def value(self, flag: str) -> str | None:
        """The last value of a flag, empty for a switch, or ``None`` when it is absent. The last one wins, as in vLLM."""
        return next((" ".join(item.values) for item in reversed(self.known) if item.flag == flag), None)


def parse(texts: Iterable[str]) -> Arguments:
    """Split a list as vLLM's parser does: ``--flag value``, ``--flag=value``, ``--flag_with_underscores``, ``-tp 8``."""
    known: list[Argument] = []
    strays: list[int] = []
    for index, text in enumerate(texts):
        head, equals, value = text.partition("=")
        if _is_flag(head):
            if any(letter.isspace() for letter in head):
                strays.append(index)
            flag = head.split()[0]
            known.append(Argument(_spelled(flag), (value,) if equals else (), index))
        elif known:
            last = known[-1]
            known[-1] = Argument(last.flag, (*last.values, text), last.index)
        else:
            strays.append(index)
    return Arguments(tuple(known), tuple(strays))


def _is_flag(head: str) -> bool:
    return head.startswith("--") or head.split(" ", maxsplit=1)[0] in short_forms()


def _spelled(flag: str) -> str:
    name, dot, key = short_forms().get(flag, flag).partition(".")
    return name.replace("_", "-") + dot + key
