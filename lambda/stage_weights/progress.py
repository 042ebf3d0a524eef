"""How far a copy is, said every few seconds in a line that people and programs read."""

import threading
import time
from types import TracebackType
from typing import Self

_GIB = 2**30
_EVERY_SECONDS = 10.0


class Progress:
    """Counts bytes from several threads and prints a line now and then."""

    def __init__(self, every_seconds: float = _EVERY_SECONDS) -> None:
        self._every, self._lock, self._ended = every_seconds, threading.Lock(), threading.Event()
        self._done = self._total = self._had = 0
        self._began = time.monotonic()
        self._thread = threading.Thread(target=self._tell, daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self._ended.set()
        self._thread.join()

    def begin(self, total: int, had: int) -> None:
        """So many bytes are to be there in the end, and so many are already."""
        with self._lock:
            self._total, self._done, self._had, self._began = total, had, had, time.monotonic()
        self.say(f"{_gib(total - had)} to copy, {_gib(had)} there already")

    def add(self, count: int) -> None:
        """So many bytes more are there; less, when some have to be copied again."""
        with self._lock:
            self._done += count

    def say(self, text: str) -> None:
        """Print a line of its own."""
        print(f"stage: {text}", flush=True)

    def line(self, now: float) -> str:
        """The state at a time of the clock that does not jump."""
        with self._lock:
            done, total, had, began = self._done, self._total, self._had, self._began
        rate = (done - had) / max(now - began, 1e-3)
        left = f", {_clock((total - done) / rate)} left" if rate > 0 else ""
        share = done / total if total else 1.0
        return f"{done / _GIB:,.1f} of {_gib(total)} ({share:.0%}), {rate / 2**20:,.0f} MiB/s{left}"

    def _tell(self) -> None:
        while not self._ended.wait(self._every):
            if self._total:
                self.say(self.line(time.monotonic()))


def _gib(count: int) -> str:
    return f"{count / _GIB:,.1f} GiB"


def _clock(seconds: float) -> str:
    minutes, rest = divmod(int(max(seconds, 0)), 60)
    return f"{minutes // 60}:{minutes % 60:02}:{rest:02}"
