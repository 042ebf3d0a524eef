"""How weights are brought into the model bucket: where from, where to, and where the record of it lies."""

import re
from dataclasses import dataclass
from typing import Final

from dpd.catalog import models
from dpd.environment.endpoint import Endpoint
from dpd.environment.environment import Environment
from dpd.environment.names import WEIGHTS, Names
from dpd.environment.storage import ExistingBucket

FOLDER: Final = "dpd-staging"
"""Folder of the records in the model bucket. Beside the weights a pod would mount them."""
_BUCKET: Final = re.compile(r"s3://(?P<bucket>[a-z0-9][a-z0-9.-]{1,61}[a-z0-9])/(?P<prefix>.*)")
_HUB: Final = re.compile(r"hub:(?P<model>[A-Za-z0-9_.-]+/[A-Za-z0-9_.-]+)@(?P<revision>[0-9a-f]{40})")


class CannotStageError(Exception):
    """What was asked for cannot be copied; the text says why, and what to do."""


@dataclass(frozen=True, slots=True)
class Job:
    """One copy: which project does it, from where, to which folder of which bucket, and how many bytes are expected."""

    project: str
    source: str
    bucket: str
    prefix: str
    expected_bytes: int


def record_key(prefix: str) -> str:
    """Key of the record of a folder. The copy itself has the same rule."""
    return f"{FOLDER}/{prefix.strip('/')}/manifest.json"


def job(environment: Environment, endpoint: Endpoint, source: str | None, *, closed: bool) -> Job:
    """The copy that an endpoint needs. ``source`` is ``hub:…@…``, ``s3://…``, or ``None`` for the catalog's repository.

    Raises ``CannotStageError``.
    """
    storage, wanted = environment.storage, endpoint.model.source.s3
    if storage.staging is None:
        raise CannotStageError("the file has no storage.staging; write `staging: {}` there and deploy the stack weights")
    if wanted is None:
        kind = endpoint.model.source.kind
        raise CannotStageError(f"{endpoint.name} reads its weights from {kind}, not from the model bucket (model.source.s3)")
    made = Names.of(environment)
    bucket = storage.models.bucket.existing if isinstance(storage.models.bucket, ExistingBucket) else made.model_bucket
    named = source or _of_catalog(endpoint)
    if _HUB.fullmatch(named):
        if closed:
            raise CannotStageError("a network without NAT cannot reach the hub: name a bucket with --from s3://<bucket>/<prefix>")
        if storage.staging.token_secret is None and endpoint.model.shape.gated:
            raise CannotStageError(f"{named} is gated: name the secret that holds your token in storage.staging.token_secret")
    elif match := _BUCKET.fullmatch(named):
        if match["bucket"] not in {bucket, *storage.staging.source_buckets}:
            raise CannotStageError(f"the project may not read {match['bucket']}: add it to storage.staging.source_buckets and deploy")
        if (match["bucket"], match["prefix"].strip("/")) == (bucket, wanted.prefix.strip("/")):
            raise CannotStageError("source and target are the same folder")
    else:
        raise CannotStageError(f"{named[:200]!r} is neither hub:<owner>/<name>@<commit> nor s3://<bucket>/<prefix>")
    return Job(made.stack(WEIGHTS), named, bucket, f"{wanted.prefix.strip('/')}/", int(endpoint.model.shape.weight_bytes))


def _of_catalog(endpoint: Endpoint) -> str:
    known = models.find(endpoint.model.catalog) if endpoint.model.catalog else None
    if known is None or not known.hub_id or not known.revision:
        like = f"hub:{known.hub_id}@<commit>" if known and known.hub_id else "hub:<owner>/<name>@<commit>"
        raise CannotStageError(f"the catalog has no commit of the weights of {endpoint.name}: name it with --from {like}")
    return f"hub:{known.hub_id}@{known.revision}"
