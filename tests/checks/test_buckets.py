"""Rules about buckets and keys."""

from typing import Any

import pytest

from dpd.finding import Level
from tests.checks.cases import ADOPTED_BUCKET, Case
from tests.support import findings


def bucket(name: str = "our-weights", **values: str) -> dict[str, Any]:
    return {"storage.models.bucket": {"existing": name, "region": "us-east-2", **values}}


def key(arn: str) -> dict[str, Any]:
    return {"storage.encryption_key": {"existing": arn}}


NAME = "storage.models.bucket.existing"
KEY = "arn:aws:kms:us-east-2:111122223333:key/11111111-2222-3333-4444-555555555555"
CASES = [
    Case("BKT001", bucket(region="us-west-2"), "storage.models.bucket.region", "us-east-2", bucket()),
    Case("BKT002", bucket("our.weights"), NAME, "dots", bucket("our-weights"), Level.WARNING),
    *(
        Case("BKT003", bucket(wrong), NAME, says, bucket(right))
        for wrong, says, right in [
            ("xn--weights", "begins with xn--", "xn-weights"),
            ("sthree-weights", "begins with sthree-", "s-three-weights"),
            ("amzn-s3-demo-weights", "begins with amzn-s3-demo-", "amzn-weights"),
            ("weights-s3alias", "ends with -s3alias", "weights-s3-alias"),
            ("weights--ol-s3", "ends with --ol-s3", "weights-ol-s3"),
            ("weights.mrap", "ends with .mrap", "weights-mrap"),
            ("weights--use2-az1--x-s3", "ends with --x-s3", "weights-x-s3"),
            ("weights--table-s3", "ends with --table-s3", "weights-table-s3"),
            ("our..weights", "beside a dot", "our.weights"),
            ("our-.weights", "beside a dot", "our-weights"),
            ("192.168.5.4", "IP address", "192-168-5-4"),
        ]
    ),
    Case(
        "BKT004",
        bucket("llama-dpd-dev-logs-111122223333-us-east-2"),
        NAME,
        "bucket: create",
        bucket("llama-dpd-qa-logs-111122223333-us-east-2"),
    ),
    *(
        Case(
            "BKT006",
            {f"storage.{place}.bucket": {"existing": wrong, "region": "us-east-2"}},
            f"storage.{place}.bucket.existing",
            "bucket: create",
            {f"storage.{place}.bucket": {"existing": right, "region": "us-east-2"}},
        )
        for place, wrong, right in [
            ("certificates", "our-hyperpod-tls", "hyperpod-tls-ours"),
            ("node_scripts", "our-sagemaker-scripts", "sagemaker-our-scripts"),
        ]
    ),
    *(
        Case(
            "BKT001",
            {f"storage.{place}.bucket": {"existing": name, "region": "us-west-2"}},
            f"storage.{place}.bucket.region",
            "us-east-2",
            {f"storage.{place}.bucket": {"existing": name, "region": "us-east-2"}},
        )
        for place, name in [("certificates", "hyperpod-tls-ours"), ("node_scripts", "sagemaker-our-scripts")]
    ),
    Case("BKT005", key(KEY.replace("us-east-2", "us-west-2")), "storage.encryption_key.existing", "key of us-west-2", key(KEY)),
    Case("BKT005", key(KEY.replace("key/", "alias/")), "storage.encryption_key.existing", "not the ARN of a KMS key", key(KEY)),
    Case("BKT005", key("arn:aws:iam::111122223333:role/x"), "storage.encryption_key.existing", "not the ARN of a KMS key", key(KEY)),
    Case(
        "BKT005",
        bucket(kms_key_arn=KEY.replace("us-east-2", "eu-west-1")),
        "storage.models.bucket.kms_key_arn",
        "key of eu-west-1",
        bucket(kms_key_arn=KEY),
    ),
]


@pytest.mark.parametrize("case", CASES, ids=lambda case: f"{case} {case.says}")
def test_smallest_wrong_and_nearest_right(case: Case) -> None:
    case.verify()


def test_a_made_name_is_checked_as_well() -> None:
    found = findings({"app": "xn--dpd"}, id="BKT003")
    assert {one.path for one in found} == {"app"}
    assert not findings({"app": "xn-dpd"}, id="BKT003")


def test_an_adopted_bucket_of_the_region_is_right() -> None:
    assert not [one for one in findings(ADOPTED_BUCKET) if one.id.startswith("BKT")]


def test_a_retained_bucket_of_an_earlier_deployment_can_be_adopted() -> None:
    assert not findings(bucket("llama-dpd-dev-models-111122223333-us-east-2"), id="BKT004")
