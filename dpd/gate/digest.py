"""When an endpoint must be proven again."""

import hashlib
import json
from dataclasses import replace

from dpd.backends.backend import backend
from dpd.backends.site import Site
from dpd.environment.environment import Environment


def digest(environment: Environment) -> str:
    """A digest of everything that makes the endpoints' pods what they are: arguments, variables, image, revision, resources.

    It is taken of the backends' objects, which name all of that. AWS tags are left out: they stand in an object, and
    change nothing that answers. An image that is named by its tag may change underneath without a new digest.
    """
    site = replace(Site.of(environment), tags={})
    objects = [backend(endpoint.backend).objects(endpoint, site) for endpoint in environment.endpoints]
    return hashlib.sha256(json.dumps(objects, sort_keys=True).encode()).hexdigest()
