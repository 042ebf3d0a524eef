"""How the weights of a model get into a worker: the volume, where it is mounted, and the objects that it needs."""

from dataclasses import dataclass
from typing import Any, Final

from dpd.backends.site import Site
from dpd.catalog.operator import operator
from dpd.environment.endpoint import Endpoint
from dpd.environment.names import LUSTRE_CLAIM, LlmdNames, weights_volume

S3_DRIVER: Final = "s3.csi.aws.com"
_SIZE: Final = {"storage": "1Ti"}
"""A size is required and never looked at."""


@dataclass(frozen=True, slots=True)
class Weights:
    """What a pod mounts, and the objects that must exist before it; all empty for weights that come from the hub."""

    volumes: tuple[dict[str, Any], ...] = ()
    mounts: tuple[dict[str, Any], ...] = ()
    objects: tuple[dict[str, Any], ...] = ()


def weights(endpoint: Endpoint, site: Site) -> Weights:
    """The weights of an endpoint, read-only wherever they lie. Raises ``ValueError`` for Lustre where the environment has none."""
    source = endpoint.model.source
    if source.s3:
        claim = LlmdNames.of(endpoint).weights(site.model_bucket, source.s3.prefix)
        return _mounted({"persistentVolumeClaim": {"claimName": claim, "readOnly": True}}, objects=_bucket_objects(endpoint, site, claim))
    if source.lustre:
        if site.lustre is None:
            raise ValueError(f"endpoint {endpoint.name!r} reads its weights from Lustre, and the environment has none")
        # The claim is the namespace's: who writes KV to the same file system mounts another part of it.
        return _mounted({"persistentVolumeClaim": {"claimName": LUSTRE_CLAIM}}, sub_path=source.lustre.path.strip("/"))
    if source.volume:
        known = source.volume
        return _mounted(
            {"persistentVolumeClaim": {"claimName": known.claim}}
            if known.claim
            else {"hostPath": {"path": known.host_path, "type": "Directory"}}
        )
    return Weights()


def _mounted(volume: dict[str, Any], *, sub_path: str = "", objects: tuple[dict[str, Any], ...] = ()) -> Weights:
    mount = operator().model_mount
    where = {"name": mount["name"], "mountPath": mount["path"], "readOnly": True, **({"subPath": sub_path} if sub_path else {})}
    return Weights(({"name": mount["name"], **volume},), (where,), objects)


def _bucket_objects(endpoint: Endpoint, site: Site, claim: str) -> tuple[dict[str, Any], ...]:
    """A folder of the model bucket as a volume, and the claim on it, bound to each other by name.

    The driver only knows volumes that exist. It mounts with a role of its own that may read the bucket and nothing else;
    the image's user is not root, whom alone a mount would serve without ``allow-other``
    (https://github.com/awslabs/mountpoint-s3-csi-driver/blob/main/docs/CONFIGURATION.md).
    """
    names, source = LlmdNames.of(endpoint), endpoint.model.source.s3
    volume = weights_volume(site.prefix, endpoint.namespace, claim)
    options = ["read-only", "allow-other", f"region {site.model_bucket_region}"]
    if source:
        options.append(f"prefix {source.prefix.rstrip('/')}/")
    access = {"accessModes": ["ReadOnlyMany"], "storageClassName": ""}
    return (
        {
            "apiVersion": "v1",
            "kind": "PersistentVolume",
            "metadata": {"name": volume, "labels": names.labels()},
            "spec": {
                "capacity": _SIZE,
                **access,
                "persistentVolumeReclaimPolicy": "Retain",
                "mountOptions": options,
                "claimRef": {"namespace": endpoint.namespace, "name": claim},
                "csi": {"driver": S3_DRIVER, "volumeHandle": volume, "volumeAttributes": {"bucketName": site.model_bucket}},
            },
        },
        {
            "apiVersion": "v1",
            "kind": "PersistentVolumeClaim",
            "metadata": {"name": claim, "namespace": endpoint.namespace, "labels": names.labels()},
            "spec": {**access, "volumeName": volume, "resources": {"requests": _SIZE}},
        },
    )
