"""A release's reader may make every call of the preflight and of a promotion, and no other."""

import ast
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

from botocore.session import Session

from dpd.catalog import iam_policies
from tests.support import ROOT

_NO_ACTION = {"sts:GetCallerIdentity"}
"""Everybody may call it."""
_NAMES = {"s3:ListObjectsV2": "s3:ListBucket", "s3:HeadBucket": "s3:ListBucket", "s3:GetBucketEncryption": "s3:GetEncryptionConfiguration"}
_PREFIXES = {"service-quotas": "servicequotas", "resourcegroupstaggingapi": "tag"}
_OTHERS = {"fleet.py", "teardown.py"}
"""Asked with the rights of whoever looks at nodes or takes an environment down, which is no part of a release."""


@cache
def operations(service: str) -> dict[str, str]:
    """API names by the names of methods."""
    client: Any = Session().create_client(service, region_name="us-east-2", aws_access_key_id="a", aws_secret_access_key="b")
    found: dict[str, str] = client.meta.method_to_api_mapping
    return found


def calls(file: Path) -> Iterator[str]:
    """Actions of the calls in a file: methods and names of paginators that belong to a service which the file asks."""
    tree = ast.parse(file.read_text(encoding="utf-8"))
    asked = [node for node in ast.walk(tree) if isinstance(node, ast.Call) and re.search(r"(?:^|\.)clients$", ast.unparse(node.func))]
    services = {node.args[0].value for node in asked if node.args and isinstance(node.args[0], ast.Constant)}
    names = {node.attr for node in ast.walk(tree) if isinstance(node, ast.Attribute)}
    names |= {node.value for node in ast.walk(tree) if isinstance(node, ast.Constant) and isinstance(node.value, str)}
    for service in services:
        for method, api in operations(str(service)).items():
            if method in names:
                action = f"{_PREFIXES.get(str(service), service)}:{api}"
                yield _NAMES.get(action, action)


def test_the_reader_may_make_every_call_and_no_other() -> None:
    made = {action for file in (ROOT / "aws_reads").glob("*.py") if file.name not in _OTHERS for action in calls(file)} - _NO_ACTION
    policies = [iam_policies.find(name) for name in ("release_reader", "release_alarms")]
    allowed = {action for policy in policies for statement in policy.statements for action in statement.actions}
    assert len(made) > 15
    assert {action.lower() for action in made} == {action.lower() for action in allowed}
