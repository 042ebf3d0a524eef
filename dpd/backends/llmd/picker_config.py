"""The endpoint picker's configuration file (``EndpointPickerConfig``), typed, as strict as the picker's own parser.

It is no Kubernetes resource, so no API server looks at it: a field, a plugin or a parameter that the version does not know is
found when the picker does not start. Here it is found first.
"""

import re
from collections.abc import Callable, Iterator, Mapping
from typing import Annotated, Any, ClassVar, Final, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationInfo, model_validator
from pydantic.alias_generators import to_camel

from dpd.backends.llmd.yaml_text import yaml_text
from dpd.catalog.llmd_plugins import ANY, PickerPlugin, picker_facts, pinned, plugins
from dpd.environment.types import Many

_QUANTITY: Final = r"^[0-9]+(?:\.[0-9]+)?(?:k|M|G|T|Ki|Mi|Gi|Ti)?$"
_DURATION: Final = r"^(?:[0-9]+(?:\.[0-9]+)?(?:ns|us|ms|s|m|h))+$"
_REMEMBERS: Final = frozenset({"active-request-scorer", "token-load-scorer", "no-hit-lru-scorer", "prefix-cache-affinity-filter"})
"""Types of plugins that go by requests which the picker itself has sent."""

Quantity = Annotated[str, Field(pattern=_QUANTITY)] | Annotated[int, Field(ge=0)]
Duration = Annotated[str, Field(pattern=_DURATION)]
Name = Annotated[str, Field(min_length=1)]


class _Part(BaseModel):
    """A piece of the configuration: unknown keys are refused, names are written in camel case."""

    model_config: ClassVar[ConfigDict] = ConfigDict(
        extra="forbid", frozen=True, strict=True, allow_inf_nan=False, alias_generator=to_camel, populate_by_name=True
    )


class Reference(_Part):
    """A plugin by its name."""

    plugin_ref: Name


class Plugin(_Part):
    """A plugin to make. Without a name it is known by its type."""

    type: Name
    name: Name | None = None
    parameters: dict[str, Any] | None = None

    @property
    def known_as(self) -> str:
        """What references say."""
        return self.name or self.type


class Weighted(Reference):
    """A plugin of a profile; a scorer has a weight, 1 when none is given."""

    weight: Annotated[float, Field(ge=0, strict=False)] | None = None


class Profile(_Part):
    """Filters, scorers and one picker, in this order, whatever the order in the list."""

    name: Name
    plugins: Many[Weighted]


class Source(Reference):
    """A source of data and who reads it."""

    extractors: Many[Reference]


class DataLayer(_Part):
    """Where the picker's data come from. The engines' metrics are read by default."""

    inject_defaults: bool | None = None
    sources: Many[Source] = ()
    discovery: Reference | None = None


class PriorityBand(_Part):
    """Limits and policies of the requests of one priority."""

    priority: int | None = None
    max_bytes: Quantity | None = None
    max_requests: Quantity | None = None
    fairness_policy_ref: Name | None = None
    ordering_policy_ref: Name | None = None


class FlowControl(_Part):
    """Requests wait here while all pods are busy, instead of in the queue of one of them."""

    max_bytes: Quantity | None = None
    max_requests: Quantity | None = None
    default_request_ttl: Annotated[Duration | None, Field(alias="defaultRequestTTL")] = None
    default_priority_band: PriorityBand | None = None
    default_negative_priority_band: PriorityBand | None = None
    priority_bands: Many[PriorityBand] = ()
    usage_limit_policy_plugin_ref: Name | None = None
    saturation_detector: Reference | None = None


class RequestHandler(_Part):
    """How requests are read."""

    parsers: Many[Reference] = ()


class PickerConfig(_Part):
    """The whole file.

    Beyond the form, every plugin and parameter must be known to a version of the router: the pinned one, or what the
    validation context names as ``version``. Raises ``ValueError`` with every fault otherwise.
    """

    api_version: Literal["llm-d.ai/v1alpha1"] = "llm-d.ai/v1alpha1"
    kind: Literal["EndpointPickerConfig"] = "EndpointPickerConfig"
    feature_gates: Many[Name] = ()
    plugins: Annotated[Many[Plugin], Field(min_length=1)]
    scheduling_profiles: Many[Profile] = ()
    data_layer: DataLayer | None = None
    flow_control: FlowControl | None = None
    request_handler: RequestHandler | None = None
    saturation_detector: Reference | None = None
    parser: Reference | None = None

    @model_validator(mode="after")
    def _known(self, info: ValidationInfo) -> "PickerConfig":
        faults = list(self.faults((info.context or {}).get("version", pinned())))
        if faults:
            raise ValueError("; ".join(faults))
        return self

    def faults(self, version: str) -> Iterator[str]:
        """What the picker of a version would refuse, or leave without effect."""
        known = plugins(version)
        yield from (f"feature gate {gate!r} is not known" for gate in self.feature_gates if not _gate(gate))
        for plugin in self.plugins:
            if plugin.type not in known:
                yield f"router {version} has no plugin {plugin.type!r}"
            else:
                yield from _parameter_faults(known[plugin.type], plugin.parameters or {})
        yield from self._reference_faults()
        yield from self._profile_faults(known)
        if self.flow_control and "flowControl" not in self.feature_gates:
            yield "flowControl is only read with the feature gate flowControl"

    def _reference_faults(self) -> Iterator[str]:
        names = [plugin.known_as for plugin in self.plugins]
        yield from (f"two plugins are called {name!r}" for name in sorted({name for name in names if names.count(name) > 1}))
        yield from (f"no plugin is called {name!r}" for name in dict.fromkeys(self._references()) if name not in names)
        profiles = [profile.name for profile in self.scheduling_profiles]
        yield from (f"two profiles are called {name!r}" for name in sorted({name for name in profiles if profiles.count(name) > 1}))

    def _references(self) -> Iterator[str]:
        yield from (one.plugin_ref for profile in self.scheduling_profiles for one in profile.plugins)
        for source in self.data_layer.sources if self.data_layer else ():
            yield source.plugin_ref
            yield from (one.plugin_ref for one in source.extractors)
        yield from (one.plugin_ref for one in (self.request_handler.parsers if self.request_handler else ()))
        yield from (one.plugin_ref for one in (self.saturation_detector, self.parser) if one)
        yield from self._flow_references()
        for plugin in self.plugins:
            parameters = plugin.parameters or {}
            deciders = parameters.get("deciders")
            yield from (deciders.values() if isinstance(deciders, dict) else ())
            yield from (str(parameters[key]) for key in ("prefixMatchInfoProducerName", "deciderPluginName") if key in parameters)

    def _flow_references(self) -> Iterator[str]:
        flow = self.flow_control
        if flow is None:
            return
        bands = (*flow.priority_bands, *(band for band in (flow.default_priority_band, flow.default_negative_priority_band) if band))
        policies = (policy for band in bands for policy in (band.fairness_policy_ref, band.ordering_policy_ref))
        yield from (name for name in (*policies, flow.usage_limit_policy_plugin_ref) if name)
        if flow.saturation_detector:
            yield flow.saturation_detector.plugin_ref

    def _profile_faults(self, known: Mapping[str, PickerPlugin]) -> Iterator[str]:
        roles = {plugin.known_as: known[plugin.type].role for plugin in self.plugins if plugin.type in known}
        handlers = [name for name, role in roles.items() if role == "handler"]
        if len(handlers) > 1:
            yield f"more than one plugin handles profiles: {', '.join(handlers)}"
        for profile in self.scheduling_profiles:
            pickers = [one.plugin_ref for one in profile.plugins if roles.get(one.plugin_ref) == "picker"]
            if len(pickers) > 1:
                yield f"profile {profile.name!r} has more than one picker: {', '.join(pickers)}"
            for one in profile.plugins:
                if one.weight is not None and roles.get(one.plugin_ref, "scorer") != "scorer":
                    yield f"profile {profile.name!r} weighs {one.plugin_ref!r}, which is no scorer"

    def alpha(self) -> tuple[str, ...]:
        """Types of plugins that the pinned picker only makes with ``--allow-experimental-plugins``."""
        known = plugins(pinned())
        return tuple(plugin.type for plugin in self.plugins if known[plugin.type].alpha)

    def idle_faults(self) -> Iterator[str]:
        """What the pinned picker accepts and never does: a decider that asks for no prefill, or that has nothing to decide by."""
        given = {plugin.type: plugin.parameters or {} for plugin in self.plugins}
        if (limits := given.get("prefix-based-pd-decider")) is not None:
            if not limits.get("nonCachedTokens"):
                yield "nonCachedTokens is 0, which is never: no prompt goes through a prefiller"
            if "approx-prefix-cache-producer" not in given:
                yield "prefix-based-pd-decider has no approx-prefix-cache-producer with the engines' block size to read"
        for handler in (given[name] for name in ("disagg-profile-handler",) if name in given):
            if not (handler.get("deciders") or {}).get("prefill") and not handler.get("deciderPluginName") and "stageOrder" not in handler:
                yield "disagg-profile-handler has no decider for prefill: no prompt goes through a prefiller"

    def private_state(self) -> tuple[str, ...]:
        """Plugins of profiles, deciders and policies that go by what this picker alone has seen."""
        scoring = {one.plugin_ref for profile in self.scheduling_profiles for one in profile.plugins}
        precise = {plugin.known_as for plugin in self.plugins if plugin.type == "precise-prefix-cache-producer"}
        found = []
        for plugin in self.plugins:
            parameters = plugin.parameters or {}
            remembers = plugin.type in _REMEMBERS or (
                plugin.type == "prefix-cache-scorer" and parameters.get("prefixMatchInfoProducerName") not in precise
            )
            counts = plugin.type == "prefix-based-pd-decider" and parameters.get("nonCachedTokens", 0) > 1
            if counts or (remembers and plugin.known_as in scoring):
                found.append(plugin.known_as)
        return (*found, *(["flowControl"] if self.flow_control else []))

    def body(self) -> dict[str, Any]:
        """The content as the picker reads it."""
        content: dict[str, Any] = self.model_dump(by_alias=True, exclude_none=True, exclude_defaults=True)
        facts = picker_facts()
        return {"apiVersion": facts.api_version, "kind": facts.kind, **content}

    def text(self) -> str:
        """The file."""
        return yaml_text(self.body())


def load(content: Mapping[str, Any], version: str) -> PickerConfig:
    """Read a configuration for a version of the router. Raises ``ValueError`` for what its picker refuses, ``KeyError`` for a version."""
    plugins(version)
    return PickerConfig.model_validate(dict(content), context={"version": version})


def _gate(text: str) -> bool:
    name, _, value = text.partition("=")
    return name in picker_facts().feature_gates and value in {"", "true", "false"}


def _number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


_TYPES: Final[dict[str, Callable[[Any], bool]]] = {
    ANY: lambda _: True,
    "boolean": lambda value: isinstance(value, bool),
    "integer": lambda value: isinstance(value, int) and not isinstance(value, bool),
    "number": _number,
    "string": lambda value: isinstance(value, str),
    "duration": lambda value: isinstance(value, str) and re.fullmatch(_DURATION, value) is not None,
}


def _parameter_faults(plugin: PickerPlugin, given: Mapping[str, Any]) -> Iterator[str]:
    yield from _faults(plugin.parameters, given, plugin.type)


def _faults(known: Any, given: Any, path: str) -> Iterator[str]:
    """Compare a value with its type: a name of one, a mapping of names to types, or a list with the type of its elements."""
    if isinstance(known, str):
        if not _TYPES[known](given):
            yield f"{path} must be of type {known}"
    elif isinstance(known, list):
        if not isinstance(given, list):
            yield f"{path} must be a list"
        else:
            for index, item in enumerate(given):
                yield from _faults(known[0], item, f"{path}[{index}]")
    elif not isinstance(given, Mapping):
        yield f"{path} must be an object"
    else:
        for name, value in given.items():
            if name in known:
                yield from _faults(known[name], value, f"{path}.{name}")
            else:
                yield f"{path} has no parameter {name!r}"
