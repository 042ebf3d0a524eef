"""The only place that makes a name or a label.

Every name that AWS or Kubernetes sees is a function of the environment file, so that two synths agree and a
check can measure it. Names that a service limits are checked by ``dpd.checks.names`` against the limits here.
"""

import hashlib
import json
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import Final

from dpd.catalog.images import default_image
from dpd.catalog.limits import longest
from dpd.catalog.llmd import llmd
from dpd.catalog.vllm_flags import named
from dpd.environment.endpoint import Endpoint
from dpd.environment.environment import Environment

NETWORK, STORAGE, EKS, HYPERPOD, ADDONS, SERVING, GATE = PARTS = ("network", "storage", "eks", "hyperpod", "addons", "serving", "gate")
OBSERVE: Final = "observe"
"""Part of the optional stack that collects metrics."""
WEIGHTS: Final = "weights"
"""Part of the optional stack that brings weights into the model bucket."""

OPERATOR_NAMESPACE: Final = "hyperpod-inference-system"
OPERATOR_SERVICE_ACCOUNT: Final = "hyperpod-inference-controller-manager"
LOAD_BALANCER_SERVICE_ACCOUNT: Final = "aws-load-balancer-controller"
KEDA_SERVICE_ACCOUNT: Final = "keda-operator"
HYPERPOD_NAMESPACE: Final = "aws-hyperpod"
TLS_BUCKET_PREFIX: Final = "hyperpod-tls"
LIFECYCLE_BUCKET_PREFIX: Final = "sagemaker-"
OPERATOR_ROLE_PREFIX: Final = "SageMakerHyperPodInference"
INSTANCE_GROUP_LABEL: Final = "sagemaker.amazonaws.com/instance-group-name"
INSTANCE_TYPE_LABEL: Final = "node.kubernetes.io/instance-type"
NODE_HEALTH_TAINT: Final = "sagemaker.amazonaws.com/node-health-status"
NODE_READER_GROUP: Final = "dpd:node-readers"
GATE_READER_GROUP: Final = "dpd:gate-readers"
DEFINER_GROUP: Final = "dpd:definers"
GATE_NAMESPACE: Final = "dpd-gate"
"""Namespace of what the health gate runs on the nodes, and of nothing else: it may reach every pod in it."""
EFA_COUNTERS: Final = "efa-counters"
"""Name of the exporter of the nodes' EFA counters."""
EFA_COUNTERS_LABELS: Final = {"app.kubernetes.io/name": EFA_COUNTERS}
"""What selects its pods."""
SCRAPER_LABEL: Final = "dpd/scrapes-metrics"
"""A namespace whose pods may read the workers' metrics carries it with the value `true`."""
REPORT_PREFIX: Final = "health-gate"
"""Folder of the health gate's reports in the log bucket."""
MANAGED_BY: Final = "hyperpod-dpd"
LUSTRE_CLAIM: Final = "lustre-models"
"""Name of a namespace's claim on the Lustre file system."""

SERVICE_NAME_LIMIT: Final = longest("kubernetes_label")
STACK_NAME_LIMIT: Final = longest("stack")
BUCKET_NAME_LIMIT: Final = longest("bucket")
ROLE_NAME_LIMIT: Final = longest("role")
CLUSTER_NAME_LIMIT: Final = min(longest("hyperpod_cluster"), longest("eks_cluster"))
CONTAINER_NAME_LIMIT: Final = longest("kubernetes_label")
LABEL_VALUE_LIMIT: Final = longest("kubernetes_label")
MODEL_NAME_LIMIT: Final = longest("sagemaker_model")


OWN_TAGS: Final = ("app", "environment")
"""Tags that this tool sets on every resource."""

_DNS_LABEL: Final = re.compile(r"[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?")
_EKS_CLUSTER: Final = re.compile(r"[0-9A-Za-z][A-Za-z0-9_-]*")


def is_dns_label(text: str) -> bool:
    """Whether a text can be the name of any Kubernetes object and the value of a label as it stands (RFC 1123)."""
    return _DNS_LABEL.fullmatch(text) is not None


def is_eks_cluster_name(text: str) -> bool:
    """Whether EKS could have a cluster of this name."""
    return len(text) <= longest("eks_cluster") and _EKS_CLUSTER.fullmatch(text) is not None


def dns_name(*parts: str) -> str:
    """Join parts to a DNS label (RFC 1123): lower case, everything else becomes '-'. Raises ``ValueError`` beyond 63."""
    text = re.sub(r"[^a-z0-9-]+", "-", "-".join(parts).lower()).strip("-")
    if not 1 <= len(text) <= SERVICE_NAME_LIMIT:
        raise ValueError(f"the name {text[:80]!r} has {len(text)} characters; 1 to {SERVICE_NAME_LIMIT} are allowed")
    return text


def label_value(text: str) -> str:
    """Make any text a legal label value: at most 63 of letters, digits, '-', '_' and '.', ends alphanumeric."""
    return re.sub(r"[^A-Za-z0-9_.-]+", "-", text)[:LABEL_VALUE_LIMIT].strip("-_.")


def sagemaker_model_name(text: str) -> str:
    """Make any text a SageMaker model name: at most 63 letters, digits and dashes, so neither dots nor slashes."""
    return re.sub(r"[^A-Za-z0-9]+", "-", text)[:MODEL_NAME_LIMIT].strip("-")


@dataclass(frozen=True, slots=True)
class Names:
    """Every name that one environment makes in AWS."""

    app: str
    environment: str
    account: str
    region: str

    @classmethod
    def of(cls, environment: Environment) -> "Names":
        """The names of an environment."""
        return cls(environment.app, environment.name, environment.account, environment.region)

    @property
    def prefix(self) -> str:
        """``<app>-<environment>``."""
        return f"{self.app}-{self.environment}"

    def stack(self, part: str) -> str:
        """Name of the stack of one part."""
        return f"{self.prefix}-{part}"

    def key_alias(self, part: str) -> str:
        """Alias of the encryption key that one part makes."""
        return f"alias/{self.stack(part)}"

    @property
    def alarms(self) -> str:
        """Pattern of the names of all alarms: CloudFormation begins them with their stack's."""
        return f"{self.prefix}-*"

    @property
    def stage(self) -> str:
        """Id of the CDK stage: the environment's name."""
        return self.environment

    @property
    def eks_cluster(self) -> str:
        """Name of the EKS cluster."""
        return self.prefix

    @property
    def hyperpod_cluster(self) -> str:
        """Name of the HyperPod cluster."""
        return self.prefix

    @property
    def operator_role(self) -> str:
        """Name of the operator's execution role; the add-on and its policy demand the prefix."""
        return f"{OPERATOR_ROLE_PREFIX}-{self.prefix}-{self.region}"

    @property
    def model_bucket(self) -> str:
        """Bucket of model weights and checkpoints."""
        return f"{self.prefix}-models-{self.account}-{self.region}"

    @property
    def tls_bucket(self) -> str:
        """Bucket into which the operator writes certificates; its managed policy only knows ``hyperpod-tls*``."""
        return f"{TLS_BUCKET_PREFIX}-{self.prefix}-{self.account}-{self.region}"

    @property
    def lifecycle_bucket(self) -> str:
        """Bucket of lifecycle scripts; the managed node policy only reads ``sagemaker-*``."""
        return f"{LIFECYCLE_BUCKET_PREFIX}{self.prefix}-{self.account}-{self.region}"

    @property
    def log_bucket(self) -> str:
        """Bucket of S3 server access logs."""
        return f"{self.prefix}-logs-{self.account}-{self.region}"

    @property
    def release_reader(self) -> str:
        """Role with which a release looks at the environment before and after it deploys."""
        return f"{self.prefix}-release-reader"

    @property
    def release_deployer(self) -> str:
        """Role with which GitHub Actions deploys the environment."""
        return f"{self.prefix}-github"

    @property
    def buckets(self) -> tuple[str, ...]:
        """All bucket names."""
        return self.model_bucket, self.tls_bucket, self.lifecycle_bucket, self.log_bucket

    @property
    def longest_stack(self) -> str:
        """The longest stack name."""
        return max((self.stack(part) for part in PARTS), key=len)


@dataclass(frozen=True, slots=True)
class EndpointNames:
    """Every name that the operator and this tool make for one endpoint."""

    endpoint: str
    namespace: str

    @classmethod
    def of(cls, endpoint: Endpoint) -> "EndpointNames":
        """The names of an endpoint."""
        return cls(endpoint.name, endpoint.namespace)

    @property
    def resource(self) -> str:
        """Name of the InferenceEndpointConfig."""
        return self.endpoint

    @property
    def routing_service(self) -> str:
        """Name of the router's Service (made by the operator)."""
        return f"{self.endpoint}-{self.namespace}-routing-service"

    @property
    def routing_host(self) -> str:
        """In-cluster host name of the router."""
        return f"{self.routing_service}.{OPERATOR_NAMESPACE}.svc.cluster.local"

    @property
    def ingress(self) -> str:
        """Name of the Ingress (made by the operator)."""
        return f"alb-{self.endpoint}-{self.namespace}"

    def workload(self, role: str) -> str:
        """Name of a role's Deployment and of its main container (made by the operator): ``prefill-…``, ``decode-…``."""
        return f"{role}-{self.endpoint}"

    @property
    def router(self) -> str:
        """Name of the router's Deployment (made by the operator)."""
        return f"{self.endpoint}-{self.namespace}-router"

    @property
    def lustre_claim(self) -> str:
        """Name of the namespace's claim on the Lustre file system."""
        return LUSTRE_CLAIM

    def labels(self) -> dict[str, str]:
        """Labels of every object that belongs to the endpoint."""
        return {
            "app.kubernetes.io/name": self.endpoint,
            "app.kubernetes.io/part-of": self.namespace,
            "app.kubernetes.io/managed-by": MANAGED_BY,
        }


def revision(endpoint: Endpoint) -> str:
    """Eight hexadecimal digits of all that prefill and decode pods must agree on to exchange KV.

    That is the model and its weights, the image and the versions in it, type and layout of the KV cache, and the arguments
    that shape it. The router pairs any prefiller with any decoder that it finds, so this is part of their labels and names:
    after a change old and new pods are strangers (https://docs.vllm.ai/en/latest/features/nixl_connector_compatibility/).
    """
    image = endpoint.image or default_image(endpoint.backend)
    model, shape, kv = endpoint.model, endpoint.model.shape, endpoint.kv
    parts = {
        "model": [shape.name, shape.dtype, shape.layers, shape.kv_heads, shape.head_dim, shape.kv_rank],
        "weights": model.source.model_dump(exclude={"hub": {"token"}}),
        "image": [image.repository, image.tag, image.digest, image.vllm, image.nixl, image.lmcache],
        "kv": [kv.dtype, kv.block_size, kv.cpu_tier and kv.tier_engine],
    }
    if shaping := sorted({" ".join(_shaping(role.extra_args)) for _name, role in endpoint.roles} - {""}):
        parts["arguments"] = shaping
    return hashlib.sha256(json.dumps(parts, sort_keys=True).encode()).hexdigest()[:8]


def _shaping(arguments: Iterable[str]) -> Iterator[str]:
    """The arguments, with their values, that decide what lies in the KV cache."""
    shapes = False
    for text in arguments:
        if text.startswith("--"):
            flag = text.partition("=")[0].partition(".")[0].replace("_", "-")
            shapes = f"--{flag.removeprefix('--').removeprefix('no-')}" in named("same_in_both_roles")
        if shapes:
            yield text


@dataclass(frozen=True)
class LlmdNames:
    """Every name and label of one endpoint's objects with the llm-d backend.

    Names of workers, router and pool carry the ``revision``, and so do the labels that select them: a new model or engine
    gets a pool of its own. What clients know, the Service and the route, keeps its name.
    """

    endpoint: str
    namespace: str
    model: str
    revision: str

    @classmethod
    def of(cls, endpoint: Endpoint) -> "LlmdNames":
        """The names of an endpoint."""
        return cls(endpoint.name, endpoint.namespace, label_value(endpoint.served_name), revision(endpoint))

    def workload(self, role: str) -> str:
        """Name of a role's Deployment, LeaderWorkerSet, PodDisruptionBudget and NetworkPolicy."""
        return f"{self.endpoint}-{role}-{self.revision}"

    @property
    def prefill(self) -> str:
        """Name of the prefill role's objects."""
        return self.workload("prefill")

    @property
    def decode(self) -> str:
        """Name of the decode role's objects."""
        return self.workload("decode")

    @property
    def workload_set(self) -> str:
        """Name of the DisaggregatedSet that holds both roles."""
        return f"{self.endpoint}-{self.revision}"

    @property
    def picker(self) -> str:
        """Name of the endpoint picker's objects."""
        return self.workload("picker")

    @property
    def pool(self) -> str:
        """Name of the InferencePool."""
        return f"{self.endpoint}-{self.revision}"

    @property
    def tokenizer(self) -> str:
        """Name of the objects that turn prompts into tokens for KV-aware routing."""
        return self.workload("tokenizer")

    @property
    def ready_prefillers(self) -> str:
        """Name of the headless Service that has the ready prefillers' addresses. A LeaderWorkerSet makes another of its own name."""
        return self.workload("prefillers")

    @property
    def service(self) -> str:
        """Name of the Service that clients inside the cluster call, on port 80."""
        return self.endpoint

    @property
    def host(self) -> str:
        """In-cluster host name of that Service."""
        return f"{self.service}.{self.namespace}.svc.cluster.local"

    @property
    def gateway(self) -> str:
        """Name of the Gateway and of its parameters."""
        return f"{self.endpoint}-gateway"

    @property
    def gateway_host(self) -> str:
        """In-cluster host name of the Service that Istio makes of the Gateway."""
        return f"{self.gateway}-istio.{self.namespace}.svc.cluster.local"

    @property
    def route(self) -> str:
        """Name of the HTTPRoute."""
        return self.endpoint

    @property
    def objective(self) -> str:
        """Name of the InferenceObjective with the endpoint's priority."""
        return self.endpoint

    @property
    def scaling_identity(self) -> str:
        """Name of the object that says how the autoscaler asks AWS for metrics."""
        return f"{self.endpoint}-scaling"

    @property
    def service_account(self) -> str:
        """Name of the workers' ServiceAccount, which may do nothing."""
        return f"{self.endpoint}-worker"

    def weights(self, bucket: str, prefix: str) -> str:
        """Name of the claim on a folder of the model bucket. What a volume points at cannot change, so another place is another claim."""
        return f"{self.endpoint}-weights-{_digest(bucket, prefix)}"

    @cached_property
    def pool_labels(self) -> dict[str, str]:
        """What the router selects its workers by, of both roles."""
        labels = llmd().labels
        return {labels["guide"]: self.endpoint, labels["revision"]: self.revision}

    def role_labels(self, role: str) -> dict[str, str]:
        """What selects the pods of one role."""
        return {**self.pool_labels, llmd().labels["role"]: role}

    def labels(self, role: str = "") -> dict[str, str]:
        """Labels of every object that belongs to the endpoint; of a role's pods those that select them as well."""
        own = {**self.role_labels(role), llmd().labels["model"]: self.model, **llmd().worker_labels} if role else {}
        return {**EndpointNames(self.endpoint, self.namespace).labels(), **own}

    @property
    def picker_labels(self) -> dict[str, str]:
        """What selects the pods of the endpoint picker."""
        return self._component("picker")

    @property
    def tokenizer_labels(self) -> dict[str, str]:
        """What selects the pods of the tokenizer."""
        return self._component("tokenizer")

    def _component(self, name: str) -> dict[str, str]:
        return {"app.kubernetes.io/component": name, "app.kubernetes.io/name": self.endpoint, llmd().labels["revision"]: self.revision}


_OF_A_DEPLOYMENT: Final = "[a-z0-9]+-[a-z0-9]{5}"
_OF_A_SET: Final = "[0-9]+(-[0-9]+)?"
_ANY_REVISION: Final = "[0-9a-f]{8}"


def pod_pattern(endpoint: Endpoint, role: str) -> str:
    """Regular expression of the whole names of a role's pods, of every revision that may run side by side.

    Roles are prefill and decode; of the llm-d backend also picker. An endpoint whose name begins like another's does not match it.
    """
    if endpoint.backend == "operator":
        return f"{EndpointNames.of(endpoint).workload(role)}-{_OF_A_DEPLOYMENT}"
    name = endpoint.name
    wide = role != "picker" and getattr(endpoint, role).expert_parallel
    if role != "picker" and endpoint.workload == "disaggregated_set":
        return f"{name}-{_ANY_REVISION}-[0-9]+-[a-z0-9]+-{role}-{_OF_A_SET}"
    return f"{name}-{role}-{_ANY_REVISION}-{_OF_A_SET if wide else _OF_A_DEPLOYMENT}"


def lustre_volume(environment_prefix: str, namespace: str) -> str:
    """Name of the PersistentVolume (cluster-wide) behind a namespace's claim on Lustre."""
    return dns_name(environment_prefix, namespace, "lustre")


def weights_volume(environment_prefix: str, namespace: str, claim: str) -> str:
    """Name of the PersistentVolume (cluster-wide) behind a claim on a folder of the model bucket, short enough to be its handle too."""
    text = f"{environment_prefix}-{namespace}-{claim}"
    return text if len(text) <= SERVICE_NAME_LIMIT else f"{text[: SERVICE_NAME_LIMIT - 9].rstrip('-')}-{_digest(text)}"


def _digest(*parts: str) -> str:
    return hashlib.sha256(json.dumps(parts).encode()).hexdigest()[:8]


def cluster_labels() -> dict[str, str]:
    """Labels of objects that belong to the cluster and not to an endpoint."""
    return {"app.kubernetes.io/part-of": MANAGED_BY, "app.kubernetes.io/managed-by": MANAGED_BY}
