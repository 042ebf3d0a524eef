"""Small text files in a bucket, before something that reads them."""

import hashlib
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from aws_cdk import CfnResource
from aws_cdk import aws_lambda as lambda_
from constructs import Construct

from stacks.constructs.realm import realm_of
from stacks.constructs.roles import role, service_trust

_CODE: Final = Path(__file__).parents[2] / "lambda" / "put_objects" / "index.py"
_TIMEOUT_SECONDS: Final = 60


def texts(folder: Path) -> dict[str, str]:
    """The files of a folder by name, with Unix line ends whatever git made of them on this machine."""
    return {path.name: path.read_text(encoding="utf-8") for path in sorted(folder.iterdir()) if path.is_file()}


class TextUpload(Construct):
    """Writes texts into a bucket. They stand in the template: a review sees them, and a change of one is an update.

    CDK's BucketDeployment brings a function with the AWS command line (22 MB in the assembly), a staging bucket and
    permissions to list and delete; this needs a few lines in the template and may write exactly these objects. Its role
    cannot write logs: what goes wrong is the reason that CloudFormation shows.
    """

    def __init__(
        self, scope: Construct, id_: str, *, bucket_name: str, bucket_arn: str, key_arn: str | None, prefix: str, files: Mapping[str, str]
    ) -> None:
        super().__init__(scope, id_)
        objects = {f"{prefix}{name}": text for name, text in files.items()}
        function = lambda_.CfnFunction(
            self,
            "Function",
            code={"zipFile": _CODE.read_text(encoding="utf-8")},
            handler="index.handler",
            runtime="python3.14",
            timeout=_TIMEOUT_SECONDS,
            description="Writes small text files into a bucket",
            role=self._role([f"{bucket_arn}/{key}" for key in objects], key_arn),
        )
        content = {key: {"Text": text, "Sha256": hashlib.sha256(text.encode()).hexdigest()} for key, text in objects.items()}
        properties: dict[str, Any] = {
            "ServiceToken": function.attr_arn,
            "ServiceTimeout": 2 * _TIMEOUT_SECONDS,
            "Bucket": bucket_name,
            "Objects": content,
        }
        self.resource: Final = CfnResource(self, "Objects", type="Custom::Texts", properties=properties)

    def _role(self, object_arns: list[str], key_arn: str | None) -> str:
        statements: list[dict[str, Any]] = [{"Effect": "Allow", "Action": "s3:PutObject", "Resource": object_arns}]
        if key_arn:
            via_s3 = {"StringEquals": {"kms:ViaService": f"s3.{realm_of(self).region}.amazonaws.com"}}
            statements.append({"Effect": "Allow", "Action": "kms:GenerateDataKey", "Resource": key_arn, "Condition": via_s3})
        document = {"Version": "2012-10-17", "Statement": statements}
        return role(
            self,
            "Role",
            trust=service_trust("lambda.amazonaws.com"),
            description="Writes small text files into a bucket",
            documents={"write": document},
        ).attr_arn
