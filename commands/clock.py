"""The day for which dates are checked. The core reads no clock: it comes in here, or from a test."""

from collections.abc import Callable
from datetime import UTC, date, datetime
from typing import Any

import click


def _day(_context: click.Context, _parameter: click.Parameter, given: datetime | None) -> date:
    return (given or datetime.now(UTC)).date()


def with_today(command: Callable[..., Any]) -> Callable[..., Any]:
    """Give a command its ``today``: the day in UTC, unless ``--today`` or ``DPD_TODAY`` says another one."""
    day = click.DateTime(["%Y-%m-%d"])
    return click.option("--today", type=day, envvar="DPD_TODAY", callback=_day, hidden=True, help="The day to check for.")(command)
