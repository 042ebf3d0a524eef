"""Rules about where the weights come from, and what each source needs."""

from collections.abc import Iterator
from typing import Final

from dpd.catalog import instances
from dpd.catalog import models as catalog
from dpd.checks.network import closed
from dpd.checks.registry import Context, Problem, check
from dpd.environment.endpoint import Endpoint
from dpd.environment.environment import Environment
from dpd.environment.model import HubSource, VolumeSource
from dpd.finding import Level
from dpd.sizing.expert_parallel import pods_per_replica

_LUSTRE: Final = "https://docs.aws.amazon.com/fsx/latest/LustreGuide/create-dra-linked-data-repo.html"
_DEPLOY: Final = "https://docs.aws.amazon.com/sagemaker/latest/dg/sagemaker-hyperpod-model-deployment-deploy-ftm.html"
_HUB: Final = "https://docs.aws.amazon.com/sagemaker/latest/dg/sagemaker-hyperpod-model-deployment-ts-huggingface.html"
_NVME: Final = "https://docs.aws.amazon.com/AWSEC2/latest/UserGuide/instance-store-lifetime.html"
_FILES: Final = (".safetensors", ".bin", ".pt", ".pth", ".gguf", ".json", ".tar", ".tar.gz", ".tgz", ".zip")


def _endpoints(environment: Environment) -> Iterator[tuple[str, Endpoint]]:
    for index, endpoint in enumerate(environment.endpoints):
        yield f"endpoints[{index}].model.source", endpoint


def _hubs(environment: Environment) -> Iterator[tuple[str, Endpoint, HubSource]]:
    for path, endpoint in _endpoints(environment):
        if endpoint.model.source.hub:
            yield f"{path}.hub", endpoint, endpoint.model.source.hub


def _volumes(environment: Environment) -> Iterator[tuple[str, Endpoint, VolumeSource]]:
    for path, endpoint in _endpoints(environment):
        if endpoint.model.source.volume:
            yield f"{path}.volume", endpoint, endpoint.model.source.volume


@check(
    "SRC001",
    "Weights on Lustre have a Lustre file system",
    why="The claim that the pods mount has no volume behind it; they wait for it, scheduled nowhere, while the nodes are billed.",
    link=_DEPLOY,
    binding=True,
)
def lustre_exists(environment: Environment, _: Context) -> Iterator[Problem]:
    """Refuse a Lustre source in an environment without Lustre."""
    for path, endpoint in _endpoints(environment):
        if endpoint.model.source.lustre and environment.storage.lustre is None:
            yield Problem(
                path=f"{path}.lustre",
                message="the environment has no Lustre file system",
                value=endpoint.model.source.lustre.path,
                fix="add storage.lustre, or read the weights from s3",
            )


@check(
    "SRC002",
    "Something fills the directory on Lustre",
    why="A new file system is empty. Only a link to the bucket brings files in by itself; elsewhere pods find no config.json.",
    link=_LUSTRE,
    level=Level.WARNING,
)
def lustre_filled(environment: Environment, _: Context) -> Iterator[Problem]:
    """Warn of a source outside the link of a file system that this tool makes."""
    lustre = environment.storage.lustre
    if lustre is None or lustre.existing:
        return
    link = lustre.link
    for path, endpoint in _endpoints(environment):
        source = endpoint.model.source.lustre
        if source and not (link and f"{source.path}/".startswith(f"{link.path}/")):
            yield Problem(
                path=f"{path}.lustre.path",
                message="nothing copies files there by itself",
                value=source.path,
                limit=f"a directory below the link {link.path}" if link else "a directory below storage.lustre.link.path",
                fix=f"move it below {link.path}, or stage it by hand and acknowledge this" if link else "add storage.lustre.link",
            )


def _paths(environment: Environment) -> Iterator[tuple[str, str]]:
    """Every path and prefix of files in the environment."""
    lustre = environment.storage.lustre
    if lustre and lustre.link:
        yield "storage.lustre.link.prefix", lustre.link.prefix
        yield "storage.lustre.link.path", lustre.link.path
    for path, endpoint in _endpoints(environment):
        source = endpoint.model.source
        if source.s3:
            yield f"{path}.s3.prefix", source.s3.prefix
        if source.lustre:
            yield f"{path}.lustre.path", source.lustre.path
        if source.volume:
            yield from ((f"{path}.volume.{key}", text) for key in ("host_path", "path") if (text := getattr(source.volume, key)))


@check(
    "SRC003",
    "Paths have no . or .. in them",
    why="S3 keys are no file paths: the S3 driver hides keys with such parts. On a file system `..` leaves the directory that was mounted.",
    link="https://github.com/awslabs/mountpoint-s3/blob/main/doc/SEMANTICS.md",
)
def plain_paths(environment: Environment, _: Context) -> Iterator[Problem]:
    """Refuse relative parts in every path and prefix."""
    for path, text in _paths(environment):
        if any(part in (".", "..") for part in text.split("/")):
            yield Problem(path=path, message="has a part that is . or ..", value=text, fix="write the path as it is, without them")


@check(
    "SRC004",
    "A source is a folder, not a file",
    why="vLLM is given the folder that holds config.json, the tokenizer and all shards. A file in its place is mounted as nothing.",
    link=_DEPLOY,
)
def folders(environment: Environment, _: Context) -> Iterator[Problem]:
    """Refuse paths that end like a weight file or an archive."""
    for path, text in _paths(environment):
        if text.rstrip("/").lower().endswith(_FILES):
            folder = text.rstrip("/").rpartition("/")[0]
            yield Problem(
                path=path,
                message="ends like a file",
                value=text,
                fix=f"write the folder that holds it{f', such as {folder[:80]}' if folder else ''}",
            )


@check(
    "SRC005",
    "A gated model has a token",
    why="The hub answers 401 for a gated model without a token whose owner accepted its licence. The pods restart on billed nodes.",
    link=_HUB,
    seen_in=("https://github.com/aws-samples/sagemaker-genai-hosting-examples/pull/93",),
)
def gated(environment: Environment, _: Context) -> Iterator[Problem]:
    """Ask for a token where the catalog knows that the repository is gated."""
    repositories = {shape.hub_id.lower() for name in catalog.names() if (shape := catalog.find(name)) and shape.gated}
    for path, endpoint, hub in _hubs(environment):
        if hub.token is None and (endpoint.model.shape.gated or hub.model_id.lower() in repositories):
            yield Problem(
                path=f"{path}.token",
                message=f"{hub.model_id[:80]} is gated",
                fix="add token: {secret: <name of a Kubernetes Secret>, key: <key in it>}, or stage the weights in s3",
            )


@check(
    "SRC006",
    "The hub can be reached",
    why="A closed network has no way to huggingface.co, and the hub's client can be told not to ask; the download fails until the "
    "endpoint times out.",
    link=_HUB,
)
def hub_reachable(environment: Environment, _: Context) -> Iterator[Problem]:
    """Refuse hub sources in a network without NAT, and beside variables that keep the client off the hub."""
    for path, endpoint, hub in _hubs(environment):
        for name in ("HF_HUB_OFFLINE", "TRANSFORMERS_OFFLINE"):
            if str(endpoint.environment.get(name, "0")).lower() not in {"0", "", "false", "no", "off"}:
                yield Problem(
                    path=f"{path.partition('.')[0]}.environment.{name}",
                    message=f"keeps the pods from downloading {hub.model_id}",
                    value=endpoint.environment[name],
                    fix="remove it, or stage the weights in s3",
                )
    if closed(environment):
        for path, _endpoint, hub in _hubs(environment):
            yield Problem(
                path=path,
                message="a network without NAT cannot reach the hub",
                value=hub.model_id,
                fix="stage the weights in s3, or make a NAT gateway",
            )


@check(
    "SRC007",
    "Weights are staged near the GPUs",
    why="From the hub every pod downloads all weights at every start, through the NAT gateway, with GPUs idle and billed; the hub "
    "answers 429 "
    "when many start at once. AWS advises S3 or FSx.",
    link=_HUB,
    level=Level.WARNING,
    seen_in=("https://github.com/awslabs/ai-on-eks/issues/320",),
)
def staged(environment: Environment, _: Context) -> Iterator[Problem]:
    """Warn of hub sources, with the amount that each start downloads."""
    for path, endpoint, hub in _hubs(environment):
        pods = sum(role.replicas * pods_per_replica(role) for _name, role in endpoint.roles)
        gib = endpoint.model.shape.weight_bytes / 2**30
        yield Problem(
            path=path,
            message=f"{pods} pods x {gib:,.0f} GiB = {pods * gib:,.0f} GiB are downloaded whenever all of them start",
            value=hub.model_id,
            fix="copy the weights to the model bucket once and use s3 or lustre",
        )


@check(
    "SRC008",
    "Weights and arithmetic are about the same model",
    why="Heads, layers and sizes come from the catalog entry; with other weights every check of memory is about another model.",
    link="docs/checks.md",
    level=Level.WARNING,
)
def same_model(environment: Environment, _: Context) -> Iterator[Problem]:
    """Compare the hub repository with that of the catalog entry."""
    for path, endpoint, hub in _hubs(environment):
        expected = endpoint.model.shape.hub_id
        if endpoint.model.catalog and expected and hub.model_id.lower() != expected.lower():
            yield Problem(
                path=f"{path}.model_id",
                message=f"the catalog entry {endpoint.model.catalog} describes {expected}",
                value=hub.model_id,
                limit=expected,
                fix="use that repository, or give the model's own config.json instead of catalog",
            )


@check(
    "SRC009",
    "Instance NVMe exists and holds the weights",
    why="host_path is a folder on the instance store. Types without one have a folder on the small root volume instead, which fills up.",
    link=_NVME,
)
def instance_store(environment: Environment, _: Context) -> Iterator[Problem]:
    """Compare the weights with the instance store of both roles' groups."""
    for path, endpoint, volume in _volumes(environment):
        if volume.host_path is None:
            continue
        needed = endpoint.model.shape.weight_bytes / 1e9
        for name in dict.fromkeys(role.group for _name, role in endpoint.roles):
            group = environment.cluster.groups.get(name)
            instance = group and instances.find(group.instance_type)
            if instance and instance.local_nvme_gb is not None and instance.local_nvme_gb < needed:
                yield Problem(
                    path=f"{path}.host_path",
                    message=f"group {name} ({instance.type}) has {instance.local_nvme_gb:,} GB of instance store",
                    value=volume.host_path,
                    limit=f"{needed:,.0f} GB for the weights",
                    fix="use s3 or lustre, or a type with a larger instance store",
                )


@check(
    "SRC010",
    "Weights outlive their node",
    why="The instance store is empty after a node is stopped or replaced, which node recovery does by itself; "
    "the new pod finds no weights.",
    link=_NVME,
    level=Level.WARNING,
)
def instance_store_lost(environment: Environment, _: Context) -> Iterator[Problem]:
    """Warn of weights on instance NVMe."""
    for path, _endpoint, volume in _volumes(environment):
        if volume.host_path:
            recovery = environment.cluster.node_recovery
            yield Problem(
                path=f"{path}.host_path",
                message="nothing fills the folder on a new node"
                + (", and node recovery makes new ones" if recovery == "automatic" else ""),
                value=volume.host_path,
                fix="use s3 or lustre, or fill the folder with a DaemonSet and acknowledge this",
            )


@check(
    "SRC011",
    "A claim can be mounted on several nodes",
    why="Prefill and decode run on different nodes. A claim on an EBS volume (ReadWriteOnce) attaches to one, "
    "and the other role waits for ever.",
    link="https://kubernetes.io/docs/concepts/storage/persistent-volumes/#access-modes",
    level=Level.INFO,
)
def shared_claim(environment: Environment, _: Context) -> Iterator[Problem]:
    """Say what this tool cannot see of a claim."""
    for path, endpoint, volume in _volumes(environment):
        if volume.claim:
            yield Problem(
                path=f"{path}.claim",
                message=f"must exist in namespace {endpoint.namespace} and allow ReadOnlyMany or ReadWriteMany",
                value=volume.claim,
                fix=f"look with: kubectl get pvc {volume.claim} -n {endpoint.namespace} -o jsonpath='{{.spec.accessModes}}'",
            )
