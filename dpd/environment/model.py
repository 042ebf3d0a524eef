"""The model of an endpoint: its shape, and where its weights come from."""

import os
import re
from pathlib import Path
from typing import Annotated, ClassVar, Literal, Self

from pydantic import Field, PrivateAttr, ValidationInfo, model_validator

from dpd.catalog import models as catalog
from dpd.catalog.models import ModelShape
from dpd.environment.huggingface import shape_of
from dpd.environment.storage import LustrePath, S3Prefix
from dpd.environment.types import CommitSha, DnsLabel, Part, Positive, Text, matching

HubModelId = Annotated[
    Text,
    matching(
        re.compile(r"[A-Za-z0-9_.-]+/[A-Za-z0-9_.-]+"),
        "must be a repository of the Hugging Face hub, as <owner>/<name>",
        "meta-llama/Llama-3.3-70B-Instruct",
    ),
]


class SecretKey(Part):
    """A reference to one key of a Kubernetes Secret. The value itself never enters a file."""

    secret: Annotated[DnsLabel, Field(examples=["hub-token"])]
    """Name of the Secret in the endpoint's namespace."""
    key: Annotated[Text, Field(pattern=r"^[A-Za-z0-9._-]+$", max_length=253)]
    """Key inside the Secret."""


class S3Source(Part):
    """Weights in the model bucket, mounted by the S3 CSI driver."""

    prefix: S3Prefix
    """Prefix of the folder that holds `config.json` and the safetensors files."""


class LustreSource(Part):
    """Weights on the Lustre file system."""

    path: LustrePath
    """Directory that holds `config.json` and the safetensors files."""


class HubSource(Part):
    """Weights from the Hugging Face hub, downloaded by each pod when it starts. Needs egress to the internet."""

    model_id: HubModelId
    """Repository on the hub."""
    revision: CommitSha
    """Commit of the repository."""
    token: SecretKey | None = None
    """Where the access token of a gated model is."""


class VolumeSource(Part):
    """Weights on something that already exists: a PersistentVolumeClaim, or instance NVMe filled beforehand."""

    exactly_one: ClassVar[tuple[str, ...]] = ("claim", "host_path")

    claim: Annotated[DnsLabel, Field(examples=["models"])] | None = None
    """PersistentVolumeClaim in the endpoint's namespace."""
    host_path: Annotated[Text, Field(pattern=r"^/opt/dlami/nvme(?:/[A-Za-z0-9._-]+)+$")] | None = None
    """Directory on each node's instance store."""
    path: Annotated[Text, Field(pattern=r"^[A-Za-z0-9._-]+(?:/[A-Za-z0-9._-]+)*$")] | None = None
    """Directory inside the claim. Default: its root."""

    @model_validator(mode="after")
    def _path_in_claim(self) -> Self:
        if self.host_path is not None and self.path is not None:
            raise ValueError("path goes with claim; write the whole directory in host_path")
        return self


class Source(Part):
    """Where the weights come from: exactly one of the kinds."""

    exactly_one: ClassVar[tuple[str, ...]] = ("s3", "lustre", "hub", "volume")

    s3: S3Source | None = None
    """The model bucket."""
    lustre: LustreSource | None = None
    """The Lustre file system."""
    hub: HubSource | None = None
    """The Hugging Face hub."""
    volume: VolumeSource | None = None
    """An existing claim, or instance NVMe."""

    @property
    def kind(self) -> Literal["s3", "lustre", "hub", "volume"]:
        """Which kind was given."""
        if self.s3:
            return "s3"
        if self.lustre:
            return "lustre"
        return "hub" if self.hub else "volume"


class Model(Part):
    """The model: a catalog entry or a Hugging Face `config.json`, its weights, and how long its context may be."""

    exactly_one: ClassVar[tuple[str, ...]] = ("catalog", "config")

    catalog: Text | None = None
    """Name of a model in the catalog."""
    config: Text | None = None
    """Path of a Hugging Face `config.json`, relative to the environment file."""
    parameters_billion: Annotated[float, Field(gt=0, le=10_000)] | None = None
    """Number of parameters, when the size cannot be read from `config.json` well enough."""
    served_name: Annotated[Text, Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9._/-]*$", max_length=128)] | None = None
    """The `model` that clients name in requests. Default: the endpoint's name."""
    source: Source
    """Where the weights come from."""
    revision: CommitSha | None = None
    """Commit of the hub's repository that the weights in a bucket, on Lustre or on a volume were copied from. `dpd promote` wants it,
    and the same in both environments."""
    max_model_len: Positive
    """Longest sequence (prompt and answer) in tokens."""

    _shape: ModelShape = PrivateAttr()

    @property
    def shape(self) -> ModelShape:
        """Layers, heads, sizes: what the arithmetic needs."""
        return self._shape

    @model_validator(mode="after")
    def _resolve(self, info: ValidationInfo) -> Self:
        if self.catalog is not None:
            found = catalog.find(self.catalog)
            if found is None:
                raise ValueError(f"catalog has no model {self.catalog[:80]!r}; it has: {', '.join(catalog.names())}")
            shape = found
        else:
            folder = Path((info.context or {}).get("folder", "."))
            # Lexically: `../models/config.json` must be found from a folder that is only about to be made.
            shape = shape_of(Path(os.path.normpath(folder / str(self.config))))
        if self.parameters_billion is not None:
            shape = shape.with_parameters(self.parameters_billion * 1e9)
        self._shape = shape
        return self
