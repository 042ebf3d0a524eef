"""The EKS cluster: where its Kubernetes API is, and a token for it."""

from base64 import b64decode, urlsafe_b64encode
from dataclasses import dataclass, field
from typing import Final

from botocore.config import Config
from botocore.exceptions import BotoCoreError, ClientError
from botocore.model import ServiceId
from botocore.session import Session
from botocore.signers import RequestSigner

from eks_api.reasons import Denied, Impossible, Waiting

_TOKEN_SECONDS: Final = 60
_CONFIG: Final = Config(connect_timeout=5, read_timeout=10, retries={"mode": "standard", "total_max_attempts": 2})
_GONE: Final = frozenset({"DELETING", "FAILED"})
_DENIED: Final = frozenset({"AccessDenied", "AccessDeniedException", "UnauthorizedOperation"})


@dataclass(frozen=True, slots=True)
class Cluster:
    """An EKS cluster; ``authority`` is the certificate authority of its API, in PEM form."""

    name: str
    region: str
    endpoint: str
    authority: str = field(repr=False)


def find(session: Session, name: str) -> Cluster:
    """Ask EKS for a cluster.

    Raises ``Impossible`` when there is none or it is going away, ``Denied`` without the permission to ask, and
    ``Waiting`` when EKS does not answer or the cluster has no API yet.
    """
    try:
        found = session.create_client("eks", config=_CONFIG).describe_cluster(name=name)["cluster"]
    except ClientError as error:
        code = error.response.get("Error", {}).get("Code", "")
        if code == "ResourceNotFoundException":
            raise Impossible(f"There is no EKS cluster {name!r} in this account and Region.") from None
        if code in _DENIED:
            raise Denied(f"The caller may not call eks:DescribeCluster on {name!r}.") from None
        raise Waiting(f"EKS answered {code or 'with an error'} to DescribeCluster of {name!r}.") from None
    except BotoCoreError as error:
        raise Waiting(
            f"The EKS service did not answer ({type(error).__name__}); from a private subnet it needs a NAT gateway "
            "or an interface endpoint for eks."
        ) from None
    status = found.get("status", "")
    if status in _GONE:
        raise Impossible(f"The EKS cluster {name!r} is {status}.")
    endpoint, authority = found.get("endpoint"), (found.get("certificateAuthority") or {}).get("data")
    if not endpoint or not authority:
        raise Waiting(f"The EKS cluster {name!r} is {status or 'not ready'} and has no API endpoint yet.")
    return Cluster(name, found["arn"].split(":")[3], endpoint, b64decode(authority).decode("ascii"))


def token(session: Session, cluster: Cluster) -> str:
    """A bearer token for the cluster's API: a presigned STS request for this one cluster, as ``aws eks get-token`` makes it.

    Nothing is sent to STS here. Source of the form: https://docs.aws.amazon.com/eks/latest/best-practices/identity-and-access-management.html
    """
    suffix = "amazonaws.com.cn" if cluster.region.startswith("cn-") else "amazonaws.com"
    signer = RequestSigner(ServiceId("STS"), cluster.region, "sts", "v4", session.get_credentials(), session.get_component("event_emitter"))
    request = {
        "method": "GET",
        "url": f"https://sts.{cluster.region}.{suffix}/?Action=GetCallerIdentity&Version=2011-06-15",
        "body": {},
        "headers": {"x-k8s-aws-id": cluster.name},
        "context": {},
    }
    url = signer.generate_presigned_url(request, operation_name="GetCallerIdentity", expires_in=_TOKEN_SECONDS)
    return "k8s-aws-v1." + urlsafe_b64encode(url.encode()).decode().rstrip("=")
