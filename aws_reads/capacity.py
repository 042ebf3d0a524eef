"""What there is to have in an AZ: instance types, zones, training plans."""

from datetime import UTC, datetime

from botocore.exceptions import ClientError

from aws_reads.asking import Ask, missing, pages
from dpd.preflight.facts import Offering, Reserved, TrainingPlan, Zone


def offering(ask: Ask) -> Offering:
    """The AZ ids that offer a type. EC2 knows it without `ml.`."""
    wanted = [{"Name": "instance-type", "Values": [ask.subject.removeprefix("ml.")]}]
    client = ask.clients("ec2")
    offers = pages(client, "describe_instance_type_offerings", "InstanceTypeOfferings", LocationType="availability-zone-id", Filters=wanted)
    return Offering(zones=tuple(sorted({one["Location"] for one in offers})))


def zone(ask: Ask) -> Zone | None:
    """An AZ by its id."""
    try:
        found = ask.clients("ec2").describe_availability_zones(ZoneIds=[ask.subject])["AvailabilityZones"]
    except ClientError as error:
        missing(error, "InvalidParameterValue")
        return None
    return Zone(name=found[0]["ZoneName"], state=found[0]["State"]) if found else None


def training_plan(ask: Ask) -> TrainingPlan | None:
    """A training plan by its ARN."""
    try:
        plan = ask.clients("sagemaker").describe_training_plan(TrainingPlanName=ask.subject)
    except ClientError as error:
        missing(error, "ResourceNotFound", "ResourceNotFoundException")
        return None
    return TrainingPlan(
        status=plan["Status"],
        start=_utc(plan.get("StartTime")),
        end=_utc(plan.get("EndTime")),
        total=plan.get("TotalInstanceCount", 0),
        in_use=plan.get("InUseInstanceCount", 0),
        targets=tuple(plan.get("TargetResources", ())),
        reserved=tuple(
            Reserved(
                instance_type=one["InstanceType"],
                count=one["TotalInstanceCount"],
                zone_id=one.get("AvailabilityZoneId", ""),
                zone_name=one.get("AvailabilityZone", ""),
            )
            for one in plan.get("ReservedCapacitySummaries", ())
            if one.get("InstanceType")
        ),
    )


def _utc(when: datetime | None) -> datetime | None:
    return when.astimezone(UTC).replace(microsecond=0) if when else None
