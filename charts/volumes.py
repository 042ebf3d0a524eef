"""The Lustre file system as a volume of a namespace, for jobs that stage weights and for pods that read them."""

from typing import Any, Final

from charts.site import LustreSite
from dpd.environment.names import LUSTRE_CLAIM, cluster_labels, lustre_volume

LUSTRE_DRIVER: Final = "fsx.csi.aws.com"


def lustre_objects(prefix: str, namespace: str, lustre: LustreSite) -> tuple[dict[str, Any], dict[str, Any]]:
    """The volume and the claim of a namespace, bound to each other by name.

    A static volume needs no AWS permission of the CSI driver: it only mounts. The volume is retained, since its data
    belongs to the storage stack (https://github.com/kubernetes-sigs/aws-fsx-csi-driver/tree/master/examples/kubernetes/static_provisioning).
    The empty storage class keeps a default class from provisioning a second file system.
    """
    volume = lustre_volume(prefix, namespace)
    size = {"storage": f"{lustre.capacity_gib}Gi"}
    return (
        {
            "apiVersion": "v1",
            "kind": "PersistentVolume",
            "metadata": {"name": volume, "labels": cluster_labels()},
            "spec": {
                "capacity": size,
                "volumeMode": "Filesystem",
                "accessModes": ["ReadWriteMany"],
                "persistentVolumeReclaimPolicy": "Retain",
                "storageClassName": "",
                "mountOptions": ["flock"],
                "claimRef": {"namespace": namespace, "name": LUSTRE_CLAIM},
                "csi": {
                    "driver": LUSTRE_DRIVER,
                    "volumeHandle": lustre.file_system_id,
                    "volumeAttributes": {"dnsname": lustre.dns_name, "mountname": lustre.mount_name},
                },
            },
        },
        {
            "apiVersion": "v1",
            "kind": "PersistentVolumeClaim",
            "metadata": {"name": LUSTRE_CLAIM, "namespace": namespace, "labels": cluster_labels()},
            "spec": {"accessModes": ["ReadWriteMany"], "storageClassName": "", "volumeName": volume, "resources": {"requests": size}},
        },
    )
