"""``make bench``: measure, print, and write the table in the docs."""

import datetime
import os
import platform
import tempfile
from pathlib import Path

from bench.cases import ROOT, bench
from bench.measure import in_turn, median_seconds, peak_mib
from bench.plan import section

REPORT = ROOT / "docs" / "benchmarks.md"


def main() -> None:
    """Run every case beside its yardstick, five times in turn, and report medians."""
    with tempfile.TemporaryDirectory() as scratch:
        plan = bench(Path(scratch))
        commands = plan.yardsticks | {case.name: case.command for case in plan.cases}
        runs = in_turn(commands)
    machine = f"{os.cpu_count()} cores, {platform.machine()}, Python {platform.python_version()}"
    lines = [
        "# Benchmarks",
        "",
        "Whole-process wall-clock time, median of five runs taken in turn with the yardsticks, after one uncounted",
        "round; peak memory is the largest single process. Written by `make bench`. The machines are noisy: read the",
        "ratio, not the seconds.",
        "",
        f"Measured {datetime.datetime.now(tz=datetime.UTC).date()} on {machine}.",
        "",
        "| What | Median | Peak memory | Yardstick | Its median | Ratio | At most | Holds |",
        "|---|---|---|---|---|---|---|---|",
    ]
    for case in plan.cases:
        ours, yardstick = median_seconds(runs[case.name]), median_seconds(runs[case.yardstick])
        ratio = ours / yardstick
        lines.append(
            f"| {case.name} | {ours:.2f} s | {peak_mib(runs[case.name]):.0f} MiB | {case.yardstick} | {yardstick:.2f} s "
            f"| {ratio:.2f} | {case.most_times:.2f} ({case.origin}) | {'yes' if ratio <= case.most_times else 'no'} |"
        )
    text = "\n".join([*lines, *section()]) + "\n"
    print(text)
    REPORT.write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
