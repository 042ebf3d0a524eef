"""The promotion part: how this environment may differ from the one that a release passed before it."""

from typing import Annotated

from pydantic import Field

from dpd.environment.types import Many, Part, Text


class Difference(Part):
    """A place of the manifests at which this environment may differ from the one before it."""

    object: Annotated[Text, Field(pattern=r"^[A-Z][A-Za-z]*(?:/[^\s/]+)?$", examples=["InferenceEndpointConfig/llama-70b"])]
    """Kind of the object, or kind and name. In a name `{prefix}` stands for `<app>-<environment>`."""
    field: Annotated[Text, Field(examples=["spec.modelSourceConfig"])] | None = None
    """Field, with all below it. Default: the whole object, which may then be missing on one side too."""
    reason: Annotated[Text, Field(min_length=8)]
    """Why it differs."""


class Promotion(Part):
    """What `dpd promote --to` this environment lets pass. Names, account, Region, AZ and numbers of replicas need no word here."""

    differences: Annotated[Many[Difference], Field(max_length=50)] = ()
    """Declared differences. An image or a revision of the model can never be one."""
    proof_hours: Annotated[int, Field(ge=1, le=720)] = 24
    """How old the health gate's report of the earlier environment may be."""
