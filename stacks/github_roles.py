"""Who GitHub Actions is in the account of an environment: one role, for jobs of one GitHub environment of one repository."""

from typing import Any, Final

from aws_cdk import CfnOutput, Stack
from aws_cdk import aws_iam as iam
from constructs import Construct

from stacks.acknowledgements import accept, wildcard
from stacks.constructs.realm import realm_of
from stacks.constructs.release_rights import Seen, any_key, decrypting, deploying, reading
from stacks.constructs.roles import role

ISSUER: Final = "token.actions.githubusercontent.com"
AUDIENCE: Final = "sts.amazonaws.com"
HOUR_SECONDS: Final = 3600
"""Longest that IAM lets a role last by default; a deployment that waits for nodes needs more."""
SESSION_HOURS: Final = 6


def subjects(repository: str, owner_id: str, repository_id: str, environment: str) -> list[str]:
    """Both forms in which GitHub names a job of a GitHub environment.

    Repositories that were made, renamed or moved since 15 July 2026 have immutable subjects, which hold the ids:
    https://github.blog/changelog/2026-04-23-immutable-subject-claims-for-github-actions-oidc-tokens
    """
    owner, _, name = repository.partition("/")
    return [f"repo:{repository}:environment:{environment}", f"repo:{owner}@{owner_id}/{name}@{repository_id}:environment:{environment}"]


class GitHubRolesStack(Stack):
    """GitHub's provider, unless the account has it, and the role of one environment: look, prove, and become CDK's deployer."""

    def __init__(
        self,
        scope: Construct,
        id_: str,
        *,
        role_name: str,
        github_environment: str,
        repository: str,
        owner_id: str,
        repository_id: str,
        create_provider: bool,
        seen: Seen,
        **stack: Any,
    ) -> None:
        super().__init__(scope, id_, **stack)
        realm = realm_of(self)
        provider = f"arn:{realm.partition}:iam::{realm.account}:oidc-provider/{ISSUER}"
        made = role(
            self,
            "Role",
            name=role_name,
            trust={
                "Version": "2012-10-17",
                "Statement": [
                    {
                        "Effect": "Allow",
                        "Principal": {"Federated": provider},
                        "Action": "sts:AssumeRoleWithWebIdentity",
                        "Condition": {
                            "StringEquals": {
                                f"{ISSUER}:aud": AUDIENCE,
                                f"{ISSUER}:sub": subjects(repository, owner_id, repository_id, github_environment),
                            }
                        },
                    }
                ],
            },
            description=f"GitHub Actions of {repository}, environment {github_environment}",
            grants=reading(self, seen, role_name),
            documents={"deploy": deploying(self, seen.qualifier), "reports": decrypting(self, seen)},
        )
        made.max_session_duration = SESSION_HOURS * HOUR_SECONDS
        if not seen.key_arn:
            accept(made, {wildcard(resource): why for resource, why in any_key(self).items()})
        if create_provider:
            # IAM checks GitHub's certificate against its own list of authorities, so there is no thumbprint to keep.
            made.node.add_dependency(iam.CfnOIDCProvider(self, "Provider", url=f"https://{ISSUER}", client_id_list=[AUDIENCE]))
        CfnOutput(self, "RoleArn", value=made.attr_arn, description=f"AWS_ROLE_ARN of the GitHub environment {github_environment}")
