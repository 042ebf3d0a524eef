"""Progress, and reasons why there can be no rehearsal."""

import time
from collections.abc import Callable
from typing import Final

Say = Callable[[str], None]
"""Takes one line of progress."""


class Unable(Exception):  # noqa: N818 - says what is in the way
    """The rehearsal cannot be held here. The text says why, and what to do."""


class Broken(Exception):  # noqa: N818 - says what happened
    """Something that was started ended, or did not come up. The text is for people, with the last lines of its log."""


class Timed:
    """Progress with the seconds since the beginning in front."""

    def __init__(self, out: Say) -> None:
        self._out = out
        self._begin = time.monotonic()

    def __call__(self, text: str) -> None:
        """Say a line."""
        self._out(f"{time.monotonic() - self._begin:6.1f} s  {text}")


MEBIBYTE: Final = 1 << 20
GIBIBYTE: Final = 1 << 30
