"""How an environment differs from the tables: speed factors, hand-over overhead and link efficiency, and the bands that are left."""

from datetime import date
from pathlib import Path
from typing import Annotated, Final, Self

import yaml
from pydantic import Field, model_validator

from dpd.environment.load import typed
from dpd.environment.types import Part
from dpd.environment.yaml_file import YamlError, read
from dpd.finding import safe
from dpd.planning.bands import UNCALIBRATED, Bands
from dpd.planning.candidate import Band

Factor = Annotated[float, Field(ge=0.05, le=20)]
Bound = Annotated[float, Field(ge=0, le=60_000)]
FOLDER: Final = "calibration"
_HEAD: Final = "# Written by `dpd calibrate`. Factors are measured over predicted; delete the file to plan without it.\n"


class Range(Part):
    """A range of a factor, or of milliseconds."""

    low: Bound
    """Its lower end."""
    high: Bound
    """Its upper end."""

    @model_validator(mode="after")
    def _ordered(self) -> Self:
        if self.high < self.low:
            raise ValueError("high must be at least low")
        return self

    @property
    def band(self) -> Band:
        """The range as a band."""
        return Band(self.low, self.high)


class Calibration(Part):
    """What was measured in one environment. Without any measurement: the neutral factors and the widest bands."""

    environment: str = ""
    """Name of the environment; empty when nothing was measured."""
    endpoint: str = ""
    """Name of the endpoint that was measured."""
    date: str = ""
    """Day of the measurement."""
    source: str = ""
    """Files that were read, and the tools that wrote them."""
    requests: Annotated[int, Field(ge=0)] = 0
    """Requests behind the factors."""
    prefill_speed: Factor = 1.0
    """Speed of prefill as a multiple of the predicted speed."""
    decode_speed: Factor = 1.0
    """Speed of decode steps as a multiple of the predicted speed."""
    handover_overhead_ms: Bound = 0.0
    """What a hand-over takes beside the wire."""
    link_efficiency: Annotated[float, Field(gt=0, le=1)] | None = None
    """Share of the EFA devices' line rate that a hand-over reaches. Default: the catalog's."""
    ttft: Range | None = None
    """Band of TTFT as a factor of the estimate."""
    itl: Range | None = None
    """Band of inter-token latency as a factor of the estimate."""
    handover_ms: Range | None = None
    """Band of the hand-over that is added to TTFT."""

    @property
    def measured(self) -> bool:
        """Whether anything was measured."""
        return bool(self.date)

    @property
    def bands(self) -> Bands:
        """The bands: of the measurement where it has one, else those of the published cases. Capacity narrows with the speed of steps."""
        wide = UNCALIBRATED
        capacity = wide.capacity
        if self.itl:
            capacity = Band(max(capacity.low, min(1.0, 1 / max(self.itl.high, 1.0))), capacity.high)
        return Bands(
            ttft=self.ttft.band if self.ttft else wide.ttft,
            itl=self.itl.band if self.itl else wide.itl,
            capacity=capacity,
            handover_ms=self.handover_ms.band if self.handover_ms else wide.handover_ms,
        )

    @property
    def words(self) -> str:
        """Where the factors come from, in one line."""
        if not self.measured:
            return "not calibrated: bands from published cases"
        return f"calibrated on {self.date} from {self.source or 'an unnamed source'} ({self.requests:,} requests)"

    def strange(self, environment: str, endpoint: str) -> str:
        """What is said of a calibration that was measured elsewhere; empty when it was not."""
        there = [name for name, here in ((self.endpoint, endpoint), (self.environment, environment)) if name and name != here]
        return f"the calibration was measured on {' of '.join(there)}: other models and nodes have other factors" if there else ""


NONE: Final = Calibration()
"""Nothing measured."""


class CalibrationError(ValueError):
    """A calibration file that cannot be used, in words for its owner."""


def path_of(environment: str, folder: Path = Path()) -> Path:
    """Where the calibration of an environment is stored: ``calibration/<environment>.yaml`` below ``folder``."""
    return folder / FOLDER / f"{environment}.yaml"


def load(path: Path) -> Calibration:
    """Read a calibration; neutral when there is no file. Raises ``CalibrationError`` with file, place and mistake."""
    if not path.exists():
        return NONE
    name = safe(str(path))
    try:
        calibration, findings = typed(read(path), Calibration, file=name, folder=path.parent)
    except YamlError as error:
        raise CalibrationError(f"{name}{f':{error.line}' if error.line else ''} {error.message}") from None
    if calibration is None:
        first = findings[0]
        raise CalibrationError(f"{name}{f':{first.line}' if first.line else ''} {first.path}: {first.message}; {first.fix}")
    try:
        date.fromisoformat(calibration.date)
    except ValueError:
        raise CalibrationError(f"{name} date: must be a day such as 2026-11-29") from None
    return calibration


def dumped(calibration: Calibration) -> str:
    """The calibration as its file."""
    content = calibration.model_dump(exclude_none=True)
    return _HEAD + yaml.safe_dump(content, sort_keys=False, allow_unicode=True, width=120)
