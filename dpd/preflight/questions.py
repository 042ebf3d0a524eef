"""What must be asked of an account before an environment is deployed to it. Whatever is asked here must be answered."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final, Literal

from dpd.backends.llmd.tokenizer import image as tokenizer_image
from dpd.backends.workload import image_reference
from dpd.catalog import add_ons, node_agents, preflight, regions
from dpd.catalog.llmd import llmd
from dpd.environment.cluster import InstanceGroup, TrainingPlan
from dpd.environment.environment import Environment
from dpd.environment.model import SecretKey
from dpd.environment.names import STORAGE, Names
from dpd.environment.storage import ExistingBucket, ExistingKey
from dpd.sizing.subnets import gpu_subnet

Kind = Literal[
    "caller", "quota", "nodes", "offering", "zone", "training_plan", "subnet", "security_group", "bucket", "folder", "key", "file_system",
    "kubernetes", "add_on", "eks_cluster", "image", "secret", "kubernetes_secret", "certificate", "service_linked_role", "bootstrap",
    "stack", "permissions",
]  # fmt: skip
ALL: Final = ""
"""Subject of a question that there is only one of."""


@dataclass(frozen=True, slots=True)
class Question:
    """What is asked about what, and the place in the file that asks it."""

    kind: Kind
    subject: str
    path: str


def questions(environment: Environment) -> Iterator[Question]:
    """Every question once, in a fixed order; the place is the first that asks it."""
    seen: set[tuple[str, str]] = set()
    for question in _all(environment):
        if (key := (question.kind, question.subject)) not in seen:
            seen.add(key)
            yield question


def _all(environment: Environment) -> Iterator[Question]:
    yield Question("caller", ALL, "account")
    yield from _account(environment)
    yield from _capacity(environment)
    yield from _network(environment)
    yield from _storage(environment)
    yield from _cluster(environment)
    yield from _images(environment)
    yield from _kubernetes_secrets(environment)


def _account(environment: Environment) -> Iterator[Question]:
    names, wanted = Names.of(environment), needs(environment)
    yield Question("bootstrap", qualifier(environment), "bootstrap_qualifier")
    yield Question("stack", names.stack(STORAGE), "app")
    for role in preflight.service_linked_roles():
        if role.when in wanted:
            yield Question("service_linked_role", role.name, "account")
    yield Question("permissions", DEPLOYER, "account")
    yield Question("permissions", EXECUTION, "account")


DEPLOYER: Final = "deployer"
"""Who calls: may it assume CDK's roles?"""
EXECUTION: Final = "cloudformation"
"""CDK's execution role, with which CloudFormation makes the stacks: may it make what is in them?"""


def qualifier(environment: Environment) -> str:
    """Qualifier of the account's bootstrap."""
    return environment.bootstrap_qualifier or preflight.bootstrap().qualifier


def needs(environment: Environment) -> tuple[str, ...]:
    """The parts of a file that need roles and actions of their own."""
    parts = {
        "always": True,
        "network": environment.network.existing is None,
        "eks": environment.cluster.existing is None,
        "lustre": environment.storage.lustre is not None and environment.storage.lustre.existing is None,
        "key": not isinstance(environment.storage.encryption_key, ExistingKey),
        "endpoints": bool(environment.endpoints),
    }
    return tuple(part for part, needed in parts.items() if needed)


def quota_of(group: InstanceGroup) -> str:
    """Name of the quota that a group's nodes count against."""
    named = preflight.quota_names()
    return (named.spot if group.capacity == "spot" else named.on_demand).format(type=group.instance_type)


def _capacity(environment: Environment) -> Iterator[Question]:
    named = preflight.quota_names()
    place = gpu_subnet(environment.network)
    spot = reserved = volumes = False
    for name, group in environment.cluster.groups.items():
        path = f"cluster.groups.{name}"
        if group.most_nodes:
            yield Question("quota", quota_of(group), f"{path}.instance_type")
            spot, reserved = spot or group.capacity == "spot", reserved or group.capacity != "spot"
            volumes = volumes or group.data_volume_gib is not None
        if place:
            yield Question("offering", group.instance_type, f"{path}.instance_type")
        if isinstance(group.capacity, TrainingPlan):
            yield Question("training_plan", group.capacity.training_plan_arn, f"{path}.capacity.training_plan_arn")
    yield Question("quota", named.per_cluster, "cluster.groups")
    if reserved:
        yield Question("quota", named.total, "cluster.groups")
    if spot:
        yield Question("quota", named.spot_total, "cluster.groups")
    if volumes:
        yield Question("quota", named.volume_gib, "cluster.groups")
    yield Question("nodes", Names.of(environment).hyperpod_cluster, "cluster.groups")


def _network(environment: Environment) -> Iterator[Question]:
    network = environment.network
    if place := gpu_subnet(network):
        yield Question("zone", place[1].availability_zone_id, f"{place[0]}.availability_zone_id")
    for index, zone in enumerate(network.control_plane_availability_zone_ids):
        yield Question("zone", zone, f"network.control_plane_availability_zone_ids[{index}]")
    if (existing := network.existing) is None:
        return
    yield Question("subnet", existing.gpu_subnet.id, "network.existing.gpu_subnet.id")
    for index, subnet in enumerate(existing.control_plane_subnets):
        yield Question("subnet", subnet.id, f"network.existing.control_plane_subnets[{index}].id")
    for index, group in enumerate(existing.security_groups):
        yield Question("security_group", group.id, f"network.existing.security_groups[{index}].id")


def model_bucket(environment: Environment) -> str:
    """Name of the model bucket, made or adopted."""
    bucket = environment.storage.models.bucket
    return bucket.existing if isinstance(bucket, ExistingBucket) else Names.of(environment).model_bucket


def folder_subject(environment: Environment, prefix: str) -> str:
    """A prefix of the model bucket, as a question names it."""
    return f"{model_bucket(environment)}/{prefix.rstrip('/')}/"


def _storage(environment: Environment) -> Iterator[Question]:
    storage, names = environment.storage, Names.of(environment)
    adopted = storage.adopted_buckets
    made = {
        "storage.models.bucket": names.model_bucket,
        "storage.certificates.bucket": names.tls_bucket,
        "storage.node_scripts.bucket": names.lifecycle_bucket,
        "storage": names.log_bucket,
    }
    for path, name in made.items():
        yield Question("bucket", adopted[path].existing if path in adopted else name, path)
    for path, bucket in adopted.items():
        if bucket.kms_key_arn:
            yield Question("key", bucket.kms_key_arn, f"{path}.kms_key_arn")
    if isinstance(storage.encryption_key, ExistingKey):
        yield Question("key", storage.encryption_key.existing, "storage.encryption_key.existing")
    if storage.lustre and storage.lustre.existing:
        yield Question("file_system", storage.lustre.existing.file_system_id, "storage.lustre.existing.file_system_id")
    for path, prefix in weight_prefixes(environment):
        yield Question("folder", folder_subject(environment, prefix), path)
    if storage.staging and storage.staging.token_secret:
        yield Question("secret", storage.staging.token_secret, "storage.staging.token_secret")


def weight_prefixes(environment: Environment) -> Iterator[tuple[str, str]]:
    """Every prefix of the model bucket that an endpoint reads weights from, with its place."""
    for index, endpoint in enumerate(environment.endpoints):
        if endpoint.model.source.s3:
            yield f"endpoints[{index}].model.source.s3.prefix", endpoint.model.source.s3.prefix


def _cluster(environment: Environment) -> Iterator[Question]:
    cluster = environment.cluster
    yield Question("kubernetes", cluster.kubernetes_version, "cluster.kubernetes_version")
    if cluster.existing:
        yield Question("eks_cluster", cluster.existing.name, "cluster.existing.name")
    for name, _ in pinned_add_ons(environment):
        yield Question("add_on", add_on_subject(name, cluster.kubernetes_version), f"cluster.add_ons.{name}")
    for index, endpoint in enumerate(environment.endpoints):
        if endpoint.exposure.certificate:
            yield Question("certificate", endpoint.exposure.certificate.acm_arn, f"endpoints[{index}].exposure.certificate.acm_arn")


def add_on_subject(name: str, kubernetes_version: str) -> str:
    """An add-on for a Kubernetes version, as a question names it."""
    return f"{name} {kubernetes_version}"


def pinned_add_ons(environment: Environment) -> Iterator[tuple[str, str]]:
    """The add-ons that a deployment installs, each with the version that it asks for; empty where EKS picks one."""
    cluster = environment.cluster
    for add_on in add_ons.all_add_ons():
        change = cluster.add_ons.get(add_on.name)
        if (change and not change.install) or (cluster.existing and not add_on.needs_nodes):
            continue
        yield add_on.name, (change and change.version) or add_on.version_for(cluster.kubernetes_version) or ""


def _images(environment: Environment) -> Iterator[Question]:
    for index, endpoint in enumerate(environment.endpoints):
        yield Question("image", image_reference(endpoint), f"endpoints[{index}].image")
    region = regions.find(environment.region)
    for agent, mirror in environment.cluster.agent_repositories.items():
        if region:
            yield Question("image", node_agents.find(agent).image(region, mirror), f"cluster.agent_repositories.{agent}")
    for name, mirror in environment.cluster.router_repositories.items():
        yield Question("image", _mirrored(environment, name, mirror), f"cluster.router_repositories.{name}")


def _kubernetes_secrets(environment: Environment) -> Iterator[Question]:
    for index, endpoint in enumerate(environment.endpoints):
        hub, path = endpoint.model.source.hub, f"endpoints[{index}]"
        named = {f"{path}.environment.{name}": value for name, value in endpoint.environment.items()}
        if hub and hub.token:
            named[f"{path}.model.source.hub.token"] = hub.token
        for place, value in named.items():
            if isinstance(value, SecretKey):
                yield Question("kubernetes_secret", f"{endpoint.namespace}/{value.secret}", place)


def _mirrored(environment: Environment, name: str, mirror: str) -> str:
    """The router's image in a mirror: what is pulled from it."""
    if (image := llmd().images.get(name)) is not None:
        return mirror + image.reference.removeprefix(image.repository)
    llmd_endpoints = [endpoint for endpoint in environment.endpoints if endpoint.backend == "llm-d"]
    tag = tokenizer_image(llmd_endpoints[0]).rpartition(":")[2] if llmd_endpoints else "latest"
    return f"{mirror}:{tag}"
