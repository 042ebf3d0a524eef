"""The calibration that a command uses: the one it was given, or the environment's own."""

from pathlib import Path
from typing import TYPE_CHECKING

import click

if TYPE_CHECKING:
    from dpd.environment.environment import Environment
    from dpd.planning.calibration import Calibration


def calibration_for(environment: "Environment", file: Path | None) -> "Calibration":
    """Read it; without one nothing is calibrated. Raises ``ClickException`` for a file that is missing or wrong."""
    from dpd.planning.calibration import CalibrationError, load, path_of  # noqa: PLC0415

    if file is not None and not file.is_file():
        raise click.ClickException(f"There is no calibration {file}. Write one with: dpd calibrate")
    try:
        return load(file or path_of(environment.name))
    except CalibrationError as error:
        raise click.ClickException(f"{error}.") from None
