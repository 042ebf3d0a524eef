"""FSx for Lustre: a file system made here, or an adopted one that lets the nodes in."""

from collections.abc import Sequence
from typing import Any, Final

from aws_cdk import CfnResource, CfnTag
from aws_cdk import aws_ec2 as ec2
from aws_cdk import aws_fsx as fsx
from constructs import Construct

from dpd.environment.storage import DataRepositoryLink, ExistingLustre, Lustre
from stacks.constructs.retained import retained
from stacks.values import LustreValues

MAINTENANCE: Final = "7:03:00"
"""Sunday, 03:00 UTC: clients wait while AWS patches, so the hour is chosen and not drawn."""
_VERSION: Final = "2.15"
_LNET_PORTS: Final = ((988, 988), (1018, 1023))


class LustreFileSystem(Construct):
    """PERSISTENT_2 on SSD, in the GPU subnet and the nodes' security group, which is what EFA mounts ask for."""

    def __init__(
        self, scope: Construct, id_: str, *, lustre: Lustre, subnet_id: str, security_group_id: str, key_arn: str, name: str
    ) -> None:
        super().__init__(scope, id_)
        iops = lustre.metadata_iops
        system = fsx.CfnFileSystem(
            self,
            "FileSystem",
            file_system_type="LUSTRE",
            file_system_type_version=_VERSION,
            storage_capacity=lustre.capacity_gib,
            storage_type="SSD",
            subnet_ids=[subnet_id],
            security_group_ids=[security_group_id],
            kms_key_id=key_arn,
            lustre_configuration={
                "deploymentType": "PERSISTENT_2",
                "perUnitStorageThroughput": lustre.throughput_mbps_per_tib,
                "efaEnabled": lustre.efa,
                "metadataConfiguration": {"mode": "USER_PROVISIONED", "iops": iops} if iops else {"mode": "AUTOMATIC"},
                # FSx takes no backups of a file system that is linked to a bucket; the bucket is the copy.
                "automaticBackupRetentionDays": 0,
                "weeklyMaintenanceStartTime": MAINTENANCE,
            },
            tags=[CfnTag(key="Name", value=name)],
        )
        retained(system, id_)
        for path, value in lustre.raw.items():
            system.add_property_override(path, value)
        self.values: Final = LustreValues(system.ref, system.attr_dns_name, system.attr_lustre_mount_name)


class AdoptedLustre(Construct):
    """Rules between the nodes and the security group of a file system that was not made here, both ways.

    Over TCP, LNet uses ports 988 and 1018 to 1023, in both directions; over EFA everything must be open.
    https://docs.aws.amazon.com/fsx/latest/LustreGuide/limit-access-security-groups.html
    """

    def __init__(self, scope: Construct, id_: str, *, existing: ExistingLustre, efa: bool, security_group_id: str) -> None:
        super().__init__(scope, id_)
        self.values: Final = LustreValues(existing.file_system_id, existing.dns_name, existing.mount_name)
        theirs = existing.security_group_id
        ports = (None,) if efa else _LNET_PORTS
        for group, peer, side in ((theirs, security_group_id, "Lustre"), (security_group_id, theirs, "Nodes")):
            for index, port in enumerate(ports):
                rule = {"group_id": group, "description": "Lustre", **_protocol(port)}
                ec2.CfnSecurityGroupIngress(self, f"Into{side}{index}", source_security_group_id=peer, **rule)
                ec2.CfnSecurityGroupEgress(self, f"OutOf{side}{index}", destination_security_group_id=peer, **rule)


def _protocol(ports: tuple[int, int] | None) -> dict[str, Any]:
    return {"ip_protocol": "-1"} if ports is None else {"ip_protocol": "tcp", "from_port": ports[0], "to_port": ports[1]}


class LustreLink(Construct):
    """A directory of a file system and a prefix of a bucket, kept the same in both directions.

    FSx looks at the bucket, its policy and its key when the link is made, so those must stand before it: ``after``.
    """

    def __init__(
        self, scope: Construct, id_: str, *, link: DataRepositoryLink, file_system_id: str, bucket_name: str, after: Sequence[CfnResource]
    ) -> None:
        super().__init__(scope, id_)
        events = ["NEW", "CHANGED", *(["DELETED"] if link.delete else [])]
        association = fsx.CfnDataRepositoryAssociation(
            self,
            "Association",
            file_system_id=file_system_id,
            file_system_path=link.path,
            data_repository_path=f"s3://{bucket_name}/{link.prefix.rstrip('/')}/",
            batch_import_meta_data_on_create=True,
            s3={"autoImportPolicy": {"events": events}, "autoExportPolicy": {"events": events}},
        )
        retained(association, id_)
        for resource in after:
            association.add_resource_dependency(resource)
