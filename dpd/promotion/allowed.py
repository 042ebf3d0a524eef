"""Where the manifests of two environments may differ."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final


@dataclass(frozen=True, slots=True)
class Place:
    """A field with all below it, or a whole object when ``field`` is empty. ``name`` is empty for every object of the kind."""

    kind: str
    name: str
    field: str
    reason: str

    def holds(self, kind: str, name: str, field: str) -> bool:
        """Whether a field of an object is inside. An empty ``field`` asks for the whole object."""
        if self.kind != kind or self.name not in ("", name):
            return False
        return not self.field or field == self.field or field.startswith((f"{self.field}.", f"{self.field}["))

    def __str__(self) -> str:
        return " ".join(part for part in (f"{self.kind}/{self.name}".rstrip("/"), self.field) if part)


_COUNT: Final = "how many run follows the load of the environment"
_SIZE: Final = "the size of the file system follows the environment"

BUILT_IN: Final = (
    Place("InferenceEndpointConfig", "", "spec.tags", "AWS tags name the environment"),
    Place("InferenceEndpointConfig", "", "spec.replicas", _COUNT),
    Place("InferenceEndpointConfig", "", "spec.pdSpec.prefillSpec.replicas", _COUNT),
    Place("InferenceEndpointConfig", "", "spec.pdSpec.decodingSpec.replicas", _COUNT),
    Place("InferenceEndpointConfig", "", "spec.pdSpec.autoScalingSpec", _COUNT),
    Place("InferenceEndpointConfig", "", "spec.autoScalingSpec", _COUNT),
    Place("Deployment", "", "spec.replicas", _COUNT),
    Place("LeaderWorkerSet", "", "spec.replicas", _COUNT),
    Place("DisaggregatedSet", "", "spec.roles[prefill].spec.replicas", _COUNT),
    Place("DisaggregatedSet", "", "spec.roles[decode].spec.replicas", _COUNT),
    Place("ScaledObject", "", "", _COUNT),
    Place("TriggerAuthentication", "", "", _COUNT),
    Place("PersistentVolume", "", "spec.capacity.storage", _SIZE),
    Place("PersistentVolumeClaim", "", "spec.resources.requests.storage", _SIZE),
)
"""Declared once for everybody: numbers of replicas, sizes, tags. Names and the like are compared by what they stand for."""


def declared(difference: Mapping[str, Any]) -> Place:
    """A difference of the environment file."""
    kind, _, name = str(difference["object"]).partition("/")
    return Place(kind, name, difference.get("field") or "", str(difference["reason"]))
