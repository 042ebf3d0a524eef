"""YAML of the files inside ConfigMaps, as a reviewer reads it."""

from typing import Any, Final

import yaml

_DUMPER: Final = getattr(yaml, "CSafeDumper", yaml.SafeDumper)
"""libyaml's where it is there: a hundred endpoints have hundreds of such files, and Python writes them ten times slower."""


class _Dumper(_DUMPER):  # type: ignore[misc, valid-type]
    """Writes a text of several lines as it stands."""


def _block(dumper: yaml.SafeDumper, text: str) -> yaml.ScalarNode:
    return dumper.represent_scalar("tag:yaml.org,2002:str", text, style="|" if "\n" in text else None)


_Dumper.add_representer(str, _block)


def yaml_text(value: Any) -> str:
    """A file: keys in the order in which they were written."""
    return str(yaml.dump(value, Dumper=_Dumper, sort_keys=False, width=140))
