"""The gate's spec, made from an environment: the JSON document of ``lambda/health_gate/spec.py``."""

import json
from collections.abc import Iterator, Mapping
from dataclasses import asdict
from typing import Any, Final

from dpd.backends.backend import Backend, backend
from dpd.backends.controllers import idle_add_ons
from dpd.backends.signs import PodSigns, Signs
from dpd.backends.site import LUSTRE_FILE_SYSTEM_ID, Site
from dpd.catalog import add_ons, instances, regions
from dpd.checks.network import closed
from dpd.environment.endpoint import Endpoint
from dpd.environment.environment import Environment
from dpd.environment.names import REPORT_PREFIX, Names
from dpd.environment.storage import DataRepositoryLink
from dpd.gate.wire import wire
from dpd.sizing.startup import GATE_RUN_SECONDS, gate_wait_seconds
from dpd.sizing.transfer import kv_floor_gb_per_second

Document = dict[str, Any]

_MARKS: Final = ("${", "}")
EFA_SECURITY_GROUP_ID: Final = "${EFA_SECURITY_GROUP_ID}"
KEY_ARN: Final = "${KEY_ARN}"
TOPIC_ARN: Final = "${TOPIC_ARN}"
PLACEHOLDERS: Final = (EFA_SECURITY_GROUP_ID, LUSTRE_FILE_SYSTEM_ID, KEY_ARN, TOPIC_ARN)
"""All that only a deployment knows. The stack puts references there; ``dpd doctor`` puts what it finds in the account."""
METRIC_NAMESPACE: Final = "HyperPodDPD"
"""Namespace of the gate's CloudWatch metrics."""
_CERTIFICATES: Final = "cert-manager"


def document(environment: Environment) -> Document:
    """The spec with placeholders. The environment must have passed the checks.

    Raises ``LookupError`` for a Region that the catalog does not know, and ``ValueError`` as the backends do.
    """
    names, site = Names.of(environment), Site.of(environment)
    region = regions.find(environment.region)
    if region is None:
        raise LookupError(f"the Region {environment.region!r} is not in the catalog")
    eks_cluster = environment.cluster.existing.name if environment.cluster.existing else names.eks_cluster
    backends = used(environment)
    signs = [backend(endpoint.backend).signs(endpoint, site) for endpoint in environment.endpoints]
    adopted, exported = environment.network.existing, environment.gate.deploy and environment.gate.efa_counters
    return {
        "environment": names.prefix,
        "region": environment.region,
        "hyperpod_cluster": names.hyperpod_cluster,
        "eks_cluster": eks_cluster,
        "eks_cluster_arn": f"arn:{region.partition}:eks:{environment.region}:{environment.account}:cluster/{eks_cluster}",
        "zone_id": _zone_id(environment),
        "groups": dict(_groups(environment, signs)),
        "security_groups": [EFA_SECURITY_GROUP_ID, *(group.id for group in (adopted.security_groups if adopted else ()))],
        "lustre": _lustre(environment, site),
        "weights": list(_weights(environment, site)),
        "add_ons": [{"name": add_on.name, "floor": add_on.floor} for add_on in _add_ons(environment)],
        # IAM has no interface endpoint in most Regions, so a closed network has no way to ask for a role.
        "roles": [] if closed(environment) else [asdict(role) for known in backends for role in known.roles(names)],
        "definitions": _definitions(signs),
        "webhook_namespaces": sorted({_CERTIFICATES, *(known.namespace for known in backends if known.namespace)}) if backends else [],
        "endpoints": [
            _endpoint(endpoint, sign, site, counted=exported and sign.pods["decode"].efa > 0)
            for endpoint, sign in zip(environment.endpoints, signs, strict=True)
        ],
        "reports": {
            "bucket": names.log_bucket,
            "prefix": REPORT_PREFIX,
            "key_arn": KEY_ARN,
            "topic_arn": TOPIC_ARN,
            "namespace": METRIC_NAMESPACE,
        },
        "deadlines": {
            "run_seconds": GATE_RUN_SECONDS,
            "wait_seconds": gate_wait_seconds(endpoint.model.shape for endpoint in environment.endpoints),
        },
    }


def used(environment: Environment) -> tuple[Backend, ...]:
    """The backends of an environment's endpoints, each once."""
    return tuple(backend(name) for name in sorted({endpoint.backend for endpoint in environment.endpoints}))


def worker_ports(spec: Mapping[str, Any]) -> tuple[int, ...]:
    """The ports of pods that the gate talks to."""
    asked = [pods for endpoint in spec["endpoints"] for pods in (*endpoint["pods"].values(), endpoint["wire"]) if pods]
    return tuple(sorted({int(pods["port"]) + server for pods in asked for server in range(int(pods.get("servers", 1)))}))


def text(spec: Mapping[str, Any]) -> str:
    """The spec as JSON text, with its placeholders."""
    return json.dumps(spec, separators=(",", ":"))


def named_values(spec: Mapping[str, Any], values: Mapping[str, str]) -> dict[str, str]:
    """Values, CDK's tokens among them, by the names of the spec's placeholders. Raises ``KeyError`` for one that has none."""
    said = text(spec)
    return {each[len(_MARKS[0]) : -len(_MARKS[1])]: values[each] for each in PLACEHOLDERS if each in said}


def filled(spec: Mapping[str, Any], values: Mapping[str, str]) -> str:
    """The spec as JSON text with values for placeholders. Raises ``KeyError`` for one that has none."""
    said = text(spec)
    for name, value in named_values(spec, values).items():
        said = said.replace(name.join(_MARKS), value)
    return said


def without_reports(spec: Mapping[str, Any], values: Mapping[str, str]) -> tuple[str, tuple[str, ...]]:
    """The spec for somebody who only wants to look, as JSON text, and the parts left out because ``values`` lacks them."""
    lacking = [placeholder for placeholder in (EFA_SECURITY_GROUP_ID, LUSTRE_FILE_SYSTEM_ID) if placeholder not in values]
    looked = {**spec, "reports": {"namespace": ""}}
    # The groups on the nodes are read from the cluster as well, so those of the spec may be fewer.
    looked["security_groups"] = [group for group in spec["security_groups"] if group not in lacking]
    left_out: tuple[str, ...] = ()
    if spec["lustre"] and spec["lustre"]["file_system_id"] in lacking:
        looked["lustre"], left_out = None, ("lustre",)
    return filled(looked, values), left_out


def _zone_id(environment: Environment) -> str:
    network = environment.network
    subnet = network.existing.gpu_subnet if network.existing else network.gpu_subnet
    if subnet is None:
        raise ValueError("the network has no GPU subnet")
    return subnet.availability_zone_id


def _groups(environment: Environment, signs: list[Signs]) -> Iterator[tuple[str, Document]]:
    """What each node must offer; of huge pages, as much as the hungriest pod of the group asks for."""
    pages: dict[str, int] = {}
    for endpoint, sign in zip(environment.endpoints, signs, strict=True):
        for name, role in endpoint.roles:
            pages[role.group] = max(pages.get(role.group, 0), sign.pods[name].hugepages_mib)
    for name, group in environment.cluster.groups.items():
        instance = instances.find(group.instance_type)
        yield (
            name,
            {
                "instance_type": group.instance_type,
                "count": group.count,
                "gpus": instance.gpus if instance else 0,
                "efa": (instance.efa or 0) if instance and instance.gpus else 0,
                "hugepages_mib": pages.get(name, 0),
            },
        )


def _lustre(environment: Environment, site: Site) -> Document | None:
    lustre = environment.storage.lustre
    if lustre is None or site.lustre is None:
        return None
    return {"file_system_id": site.lustre.file_system_id, "associated": lustre.link is not None}


def _weights(environment: Environment, site: Site) -> Iterator[Document]:
    """Where each model lies in the bucket: its own prefix, or that of its directory on a linked file system."""
    lustre = environment.storage.lustre
    link = lustre.link if lustre else None
    prefixes = {prefix: None for endpoint in environment.endpoints if (prefix := _prefix(endpoint, link)) is not None}
    for prefix in prefixes:
        yield {"bucket": site.model_bucket, "prefix": prefix}


def _prefix(endpoint: Endpoint, link: DataRepositoryLink | None) -> str | None:
    source = endpoint.model.source
    if source.s3:
        return source.s3.prefix.rstrip("/")
    if source.lustre and link and f"{source.lustre.path}/".startswith(f"{link.path}/"):
        return f"{link.prefix.rstrip('/')}{source.lustre.path.removeprefix(link.path)}"
    return None


def _add_ons(environment: Environment) -> Iterator[add_ons.AddOn]:
    """The add-ons that this tool installs: an adopted cluster keeps its own network add-ons, and the file may leave some out."""
    changes, idle = environment.cluster.add_ons, idle_add_ons(environment.endpoints)
    for add_on in add_ons.all_add_ons():
        ours = add_on.name not in idle and (add_on.needs_nodes or environment.cluster.existing is None)
        if ours and (add_on.name not in changes or changes[add_on.name].install):
            yield add_on


def _definitions(signs: list[Signs]) -> list[Document]:
    """Every definition once, with the fields that any endpoint sets."""
    fields: dict[tuple[str, str], set[str]] = {}
    for definition in (each for sign in signs for each in sign.definitions):
        fields.setdefault((definition.name, definition.version), set()).update(definition.fields)
    return [{"name": name, "version": version, "fields": sorted(known)} for (name, version), known in fields.items()]


def _endpoint(endpoint: Endpoint, signs: Signs, site: Site, *, counted: bool) -> Document:
    return {
        "name": endpoint.name,
        "namespace": endpoint.namespace,
        "path": signs.path,
        "served_name": endpoint.served_name,
        "threshold_tokens": endpoint.routing.threshold_tokens,
        "max_model_len": endpoint.model.max_model_len,
        "pods": {role: asdict(pods) for role, pods in signs.pods.items()},
        "kv_floor_gb_per_second": _floor(endpoint, signs.pods["decode"], site),
        "objectives": {"ttft_ms": endpoint.objectives.ttft_p99_ms, "itl_ms": endpoint.objectives.itl_p99_ms},
        "resources": [asdict(known) for known in signs.resources],
        "sagemaker_endpoint": endpoint.exposure.sagemaker_endpoint or "",
        "characters_per_token": signs.characters_per_token,
        "chunk_tokens": signs.chunk_tokens,
        "logs": asdict(signs.logs),
        "decisions": asdict(signs.decisions) if signs.decisions else None,
        "series": dict(signs.series),
        "wire": asdict(wire()) if counted else None,
        "patterns": [asdict(known) for known in signs.patterns],
        "remedies": dict(signs.remedies),
    }


def _floor(endpoint: Endpoint, decode: PodSigns, site: Site) -> float:
    ranks = endpoint.decode.tensor_parallel * decode.servers
    return kv_floor_gb_per_second(site.instance(endpoint.decode.group), efa_devices=decode.efa, ranks=ranks)
