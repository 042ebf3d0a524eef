"""Custom resource: writes texts into a bucket. It never deletes: what nodes may still read outlives the stack.

Properties: ``Bucket``; ``Objects``, from key to ``{"Text", "Sha256"}``. The digest catches what a template does to
characters outside ASCII. The file is put into the template as it is, so it stays one short file.
"""

import hashlib
import json
from typing import Any
from urllib.request import Request, urlopen

import boto3


def put(s3: Any, properties: dict[str, Any]) -> None:
    """Write every object. Raises ``ValueError`` before the first one when a text is not what was synthesized."""
    bodies = {key: content["Text"].encode() for key, content in properties["Objects"].items()}
    for key, body in bodies.items():
        if hashlib.sha256(body).hexdigest() != properties["Objects"][key]["Sha256"]:
            raise ValueError(f"{key} was changed on its way here; use ASCII only")
    for key, body in bodies.items():
        s3.put_object(Bucket=properties["Bucket"], Key=key, Body=body, ContentType="text/plain; charset=utf-8")


def handler(event: dict[str, Any], context: object) -> None:  # noqa: ARG001
    """Answer CloudFormation whatever happens: without an answer it waits for an hour."""
    reason = ""
    try:
        if event["RequestType"] != "Delete":
            put(boto3.client("s3"), event["ResourceProperties"])
    except Exception as error:
        reason = f"{type(error).__name__}: {error}"[:1000]
    answer = {
        "Status": "FAILED" if reason else "SUCCESS",
        "Reason": reason,
        "PhysicalResourceId": event.get("PhysicalResourceId") or event["LogicalResourceId"],
        **{key: event[key] for key in ("StackId", "RequestId", "LogicalResourceId")},
    }
    # urllib would send a content type of its own, which the address was not signed for.
    urlopen(Request(event["ResponseURL"], json.dumps(answer).encode(), {"Content-Type": ""}, method="PUT"), timeout=30)  # noqa: S310
