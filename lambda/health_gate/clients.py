"""The real clients."""

from typing import Any

from eks_api.http import Server

from health_gate.kubernetes import Kubernetes
from health_gate.spec import Spec
from health_gate.view import Aws, Clients


def clients(spec: Spec, *, direct: bool = True, session: Any = None) -> Clients:
    """Clients with the credentials of the surroundings. ``direct`` as in ``Kubernetes``: a laptop is not in the VPC."""
    import botocore.session  # noqa: PLC0415 - half of a cold start, and not needed to answer a Delete

    aws = Aws(session or botocore.session.get_session(), spec.region)

    def kubernetes() -> Kubernetes:
        from eks_api import cluster  # noqa: PLC0415

        found = cluster.find(aws.session, spec.eks_cluster)
        return Kubernetes(Server(found.endpoint, authority=found.authority), lambda: cluster.token(aws.session, found), direct=direct)

    return Clients(aws, kubernetes)
