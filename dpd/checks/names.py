"""Rules about names: their length, their owners, and two things that would be called the same."""

from collections import defaultdict
from collections.abc import Iterator

from dpd.catalog import limits
from dpd.checks.registry import Context, Problem, check
from dpd.environment import names
from dpd.environment.endpoint import Endpoint
from dpd.environment.environment import Environment
from dpd.environment.names import EndpointNames, LlmdNames, Names
from dpd.finding import Level

_KUBERNETES = "https://kubernetes.io/docs/concepts/overview/working-with-objects/names/"
_DPD = "https://docs.aws.amazon.com/sagemaker/latest/dg/sagemaker-hyperpod-model-deployment-dpd.html"
_CLUSTER_NAME = "https://docs.aws.amazon.com/eks/latest/APIReference/API_CreateCluster.html"


def _endpoints(environment: Environment) -> Iterator[tuple[str, Endpoint]]:
    for index, endpoint in enumerate(environment.endpoints):
        yield f"endpoints[{index}]", endpoint


@check(
    "NAM001",
    "The router's Service name fits",
    why="The operator calls the router's Service <name>-<namespace>-routing-service. Kubernetes refuses a Service name of more "
    "than 63 characters, so the pods run, billed, and nothing can reach them.",
    link=_DPD,
    seen_in=("https://github.com/llm-d/llm-d-deployer/issues/11",),
)
def routing_service(environment: Environment, _: Context) -> Iterator[Problem]:
    """Keep name and namespace together short enough."""
    for path, endpoint in _endpoints(environment):
        if endpoint.backend != "operator":
            continue
        service = EndpointNames.of(endpoint).routing_service
        over = len(service) - names.SERVICE_NAME_LIMIT
        if over > 0:
            together = len(endpoint.name) + len(endpoint.namespace)
            yield Problem(
                path=f"{path}.name",
                message=f"the router's Service would be called {service[:70]}… with {len(service)} characters; "
                f"name ({len(endpoint.name)}) and namespace ({len(endpoint.namespace)}) have {together} together",
                value=endpoint.name,
                limit=f"name and namespace together at most {together - over} characters",
                fix=f"shorten name or namespace by {over}",
            )


@check(
    "NAM002",
    "Names of the roles' objects fit",
    why="The operator calls the Deployment and the container of a role <role>-<name>, and llm-d's objects carry the role and the revision "
    "behind the name; names of containers, of sets and of their pods are DNS labels of at most 63 characters.",
    link=_DPD,
)
def role_containers(environment: Environment, _: Context) -> Iterator[Problem]:
    """Keep every endpoint's name short enough for its roles."""
    for path, endpoint in _endpoints(environment):
        longest = max(_role_names(endpoint), key=len)
        over = len(longest) - names.CONTAINER_NAME_LIMIT
        if over > 0:
            yield Problem(
                path=f"{path}.name",
                message=f"a role's {'container' if endpoint.backend == 'operator' else 'pods'} would be called {longest[:70]}… with "
                f"{len(longest)} characters",
                value=endpoint.name,
                limit=f"at most {len(endpoint.name) - over} characters",
                fix=f"shorten the name by {over}",
            )


def _role_names(endpoint: Endpoint) -> Iterator[str]:
    if endpoint.backend == "operator":
        yield from (EndpointNames.of(endpoint).workload(role) for role, _role in endpoint.roles)
        return
    made = LlmdNames.of(endpoint)
    yield from (made.prefill, made.decode, made.picker, made.tokenizer, made.ready_prefillers, f"{made.gateway}-istio")
    for role, settings in endpoint.roles:
        if settings.expert_parallel:
            yield f"{made.workload(role)}-{settings.replicas}-{settings.expert_parallel.nodes}"
        elif endpoint.workload == "disaggregated_set":
            # The controller names a set's part by slice, a hash of up to ten characters, and role.
            yield f"{made.workload_set}-0-{'x' * 10}-{role}-{settings.replicas}"


@check(
    "NAM003",
    "Names of stacks, buckets, roles and clusters fit",
    why="These names are made of app, environment, account and Region. CloudFormation meets the service's limit only when it makes "
    "the resource, and then rolls the stack back.",
    link="https://docs.aws.amazon.com/AmazonS3/latest/userguide/bucketnamingrules.html",
    binding=True,
)
def made_names(environment: Environment, _: Context) -> Iterator[Problem]:
    """Measure every name that an environment makes in AWS, and say which of them leaves least room."""
    made = Names.of(environment)
    kinds = [
        ("stack", names.STACK_NAME_LIMIT, made.longest_stack),
        ("cluster", names.CLUSTER_NAME_LIMIT, made.eks_cluster),
        ("role", names.ROLE_NAME_LIMIT, made.operator_role),
        ("bucket", names.BUCKET_NAME_LIMIT, max(made.buckets, key=len)),
    ]
    over, kind, limit, name = max((len(name) - limit, kind, limit, name) for kind, limit, name in kinds)
    if over > 0:
        together = len(environment.app) + len(environment.name)
        yield Problem(
            path="app",
            message=f"the {kind} {name[:80]} would have {len(name)} characters",
            value=environment.app,
            limit=f"{limit} characters for a {kind}",
            fix=f"cut {over} characters off the names of app and environment, which have {together} together",
        )


@check(
    "NAM004",
    "No two objects share a name",
    why="Names that the operator derives join name and namespace with '-', so a-b in c and a in b-c give one router Service: "
    "the endpoint that is applied last takes the other's traffic. The name alone is the folder of an endpoint's manifests, its stack "
    "output and its name in reports.",
    link=_KUBERNETES,
    binding=True,
    seen_in=("https://github.com/cdk8s-team/cdk8s/issues/3270", "https://github.com/cdk8s-team/cdk8s-core/issues/761"),
)
def unique_objects(environment: Environment, _: Context) -> Iterator[Problem]:
    """Compare every object that the operator and this tool make, by kind, namespace and name."""
    first: dict[tuple[str, str, str], str] = {}
    called: dict[str, tuple[str, str]] = {}
    for path, endpoint in _endpoints(environment):
        namesake, namespace = called.setdefault(endpoint.name, (path, endpoint.namespace))
        if namespace != endpoint.namespace:
            yield Problem(
                path=f"{path}.name",
                message=f"{namesake} in namespace {namespace} has the same name, and both would be one folder of manifests",
                value=endpoint.name,
                limit="one endpoint of a name in an environment",
                fix="give one of the two endpoints another name",
            )
        for kind, namespace, name in _objects(endpoint):
            taken = first.setdefault((kind, namespace, name), path)
            if taken != path:
                yield Problem(
                    path=f"{path}.name",
                    message=f"makes the {kind} {name} in namespace {namespace}, which {taken} makes as well",
                    value=endpoint.name,
                    limit="one object of a kind and name in a namespace",
                    fix="give one of the two endpoints another name",
                )
                break


def _objects(endpoint: Endpoint) -> Iterator[tuple[str, str, str]]:
    if endpoint.backend != "operator":
        own = LlmdNames.of(endpoint)
        for name in (own.prefill, own.decode, own.picker, own.tokenizer):
            yield "workload", endpoint.namespace, name
        for name in (own.service, own.gateway):
            yield "Service", endpoint.namespace, name
        return
    made = EndpointNames.of(endpoint)
    yield "InferenceEndpointConfig", endpoint.namespace, made.resource
    for role, _ in endpoint.roles:
        yield "Deployment", endpoint.namespace, made.workload(role)
    yield "Deployment", names.OPERATOR_NAMESPACE, made.router
    yield "Service", names.OPERATOR_NAMESPACE, made.routing_service
    yield "Ingress", names.OPERATOR_NAMESPACE, made.ingress


@check(
    "NAM005",
    "SageMaker endpoint names are unique",
    why="A SageMaker endpoint name is unique in an account and Region, whatever its case; the second registration never becomes ready.",
    link="https://docs.aws.amazon.com/sagemaker/latest/APIReference/API_CreateEndpoint.html",
)
def unique_sagemaker_endpoints(environment: Environment, _: Context) -> Iterator[Problem]:
    """Compare the SageMaker endpoint names of all endpoints."""
    first: dict[str, str] = {}
    for path, endpoint in _endpoints(environment):
        name = endpoint.exposure.sagemaker_endpoint
        if name is None:
            continue
        taken = first.setdefault(name.lower(), path)
        if taken != path:
            yield Problem(
                path=f"{path}.exposure.sagemaker_endpoint",
                message=f"{taken} registers the same SageMaker endpoint",
                value=name,
                limit="one in an account and Region, whatever the case of its letters",
                fix="give each endpoint its own SageMaker endpoint name",
            )


@check(
    "NAM006",
    "Endpoints live in a namespace of their own",
    why="A namespace that belongs to the cluster, to HyperPod or to an add-on is changed and deleted by its owner.",
    link="https://kubernetes.io/docs/concepts/overview/working-with-objects/namespaces/",
)
def namespaces(environment: Environment, _: Context) -> Iterator[Problem]:
    """Refuse namespaces that somebody else owns; warn of the default one."""
    for path, endpoint in _endpoints(environment):
        owner = limits.namespace_owner(endpoint.namespace)
        if owner is not None:
            yield Problem(
                path=f"{path}.namespace",
                message=f"belongs to {owner}",
                value=endpoint.namespace,
                fix="name a namespace for endpoints, such as inference",
            )
        elif endpoint.namespace == "default":
            yield Problem(
                path=f"{path}.namespace",
                message="is where everything lands that names no namespace; quotas, policies and cleaning up cannot tell it apart",
                value=endpoint.namespace,
                fix="name a namespace for endpoints, such as inference",
                level=Level.WARNING,
            )


@check(
    "NAM007",
    "No Service is called like the software in the pods",
    why="Kubernetes puts NAME_PORT=tcp://… into every pod of a namespace for each Service called NAME. "
    "vLLM reads VLLM_PORT as a number and dies.",
    link="https://docs.vllm.ai/en/latest/configuration/env_vars.html",
    seen_in=("https://github.com/vllm-project/vllm/issues/34199",),
)
def service_variables(environment: Environment, _: Context) -> Iterator[Problem]:
    """Refuse endpoint names whose variables the serving software would read as its own."""
    for path, endpoint in _endpoints(environment):
        if endpoint.name in limits.words("variable_prefixes"):
            variable = f"{endpoint.name.upper()}_PORT"
            yield Problem(
                path=f"{path}.name",
                message=f"a Service of this name sets {variable}=tcp://… in the pods, and {endpoint.name} reads variables that begin so",
                value=endpoint.name,
                fix=f"add something to the name, such as {endpoint.name}-70b",
            )


@check(
    "NAM008",
    "Clients can tell models apart",
    why="The served name is what a request says in `model` and what metrics are labelled with. "
    "A LoRA adapter of the same name is never reached.",
    link="https://docs.vllm.ai/en/latest/features/lora.html",
)
def served_names(environment: Environment, _: Context) -> Iterator[Problem]:
    """Warn of one served name for two models in a namespace; refuse adapters that hide a model or each other."""
    models: dict[tuple[str, str], tuple[str, str]] = {}
    for path, endpoint in _endpoints(environment):
        model = endpoint.model.catalog or endpoint.model.config or ""
        taken, other = models.setdefault((endpoint.namespace, endpoint.served_name), (path, model))
        if other != model:
            yield Problem(
                path=f"{path}.model.served_name",
                message=f"{taken} serves another model under the same name in the same namespace",
                value=endpoint.served_name,
                fix="give each model its own served_name",
                level=Level.WARNING,
            )
        for role, settings in endpoint.roles:
            seen = {endpoint.served_name}
            for adapter in lora_names(settings.extra_args):
                if adapter in seen:
                    yield Problem(
                        path=f"{path}.{role}.extra_args",
                        message="a LoRA adapter has the name of the model or of another adapter",
                        value=adapter,
                        fix="give every adapter its own name",
                    )
                seen.add(adapter)


def lora_names(arguments: tuple[str, ...]) -> Iterator[str]:
    """Names of the adapters in vLLM arguments: ``--lora-modules a=path b=path``, also with ``=`` after the flag."""
    inside = False
    for argument in (word for text in arguments for word in text.split()):
        flag, _, value = argument.partition("=")
        if argument.startswith("--"):
            inside = flag == "--lora-modules"
            argument = value  # noqa: PLW2901
        if inside and "=" in argument and not argument.startswith("{"):
            yield argument.partition("=")[0]


@check(
    "NAM009",
    "An adopted EKS cluster has a name that can be used as a label",
    why="Charts reuse the cluster's name for objects and labels; those must be lower case, while EKS also allows capitals and underscores.",
    link=_CLUSTER_NAME,
    level=Level.WARNING,
    seen_in=(
        "https://github.com/DataDog/helm-charts/issues/1132",
        "https://github.com/DataDog/helm-charts/issues/2070",
        "https://github.com/aws/eks-anywhere/issues/4958",
    ),
)
def adopted_cluster(environment: Environment, _: Context) -> Iterator[Problem]:
    """Refuse what EKS cannot have named so, and warn of what charts stumble over."""
    existing = environment.cluster.existing
    if existing is None or names.is_dns_label(existing.name):
        return
    possible = names.is_eks_cluster_name(existing.name)
    yield Problem(
        path="cluster.existing.name",
        message="is not lower case, so charts that reuse it as a name or label fail"
        if possible
        else "cannot be the name of an EKS cluster",
        value=existing.name,
        limit="lower-case letters, digits and '-'" if possible else "letters, digits, '-' and '_', starting with a letter or digit",
        fix="keep charts that reuse the cluster's name off this cluster" if possible else "write the name, not the ARN or the URL",
        level=Level.WARNING if possible else Level.ERROR,
    )


@check(
    "NAM010",
    "Tag keys are unique whatever their case",
    why="IAM refuses a role whose tag keys differ only in case, and app and environment are tags that this tool sets itself.",
    link="https://docs.aws.amazon.com/IAM/latest/UserGuide/id_tags.html",
)
def tags(environment: Environment, _: Context) -> Iterator[Problem]:
    """Compare all tag keys without case, the tool's own included."""
    keys = defaultdict(list)
    for key in (*names.OWN_TAGS, *environment.tags):
        keys[key.lower()].append(key)
    for key in environment.tags:
        others = keys[key.lower()]
        if len(others) > 1 and key != others[0]:
            yield Problem(
                path=f"tags.{key}",
                message=f"is the same tag as {others[0]} to IAM" if others[0] not in names.OWN_TAGS else f"{others[0]} is set by this tool",
                value=environment.tags[key],
                fix="remove it, or give it another key",
            )
        elif key in names.OWN_TAGS:
            yield Problem(
                path=f"tags.{key}", message="is set by this tool", value=environment.tags[key], fix="remove it, or give it another key"
            )


@check(
    "NAM011",
    "Names of Lustre volumes fit",
    why="The volume behind a namespace's claim is called <app>-<environment>-<namespace>-lustre; "
    "the manifest cannot be made when it is too long.",
    link=_KUBERNETES,
    binding=True,
)
def lustre_volumes(environment: Environment, _: Context) -> Iterator[Problem]:
    """Measure the name of the volume of every namespace that reads from Lustre."""
    for path, endpoint in _endpoints(environment):
        if endpoint.model.source.lustre is None:
            continue
        try:
            names.lustre_volume(Names.of(environment).prefix, endpoint.namespace)
        except ValueError as error:
            yield Problem(
                path=f"{path}.namespace",
                message=f"the volume's name is too long: {error}",
                value=endpoint.namespace,
                limit=f"{names.SERVICE_NAME_LIMIT} characters for <app>-<environment>-<namespace>-lustre",
                fix="shorten the namespace",
            )


@check(
    "NAM012",
    "A domain name leads to one endpoint",
    why="Each endpoint has a load balancer of its own. The operator writes the DNS record of the name, so the endpoint that comes last "
    "takes the traffic of the others.",
    link="https://docs.aws.amazon.com/sagemaker/latest/dg/sagemaker-hyperpod-model-deployment-custom-certs.html",
)
def domain_names(environment: Environment, _: Context) -> Iterator[Problem]:
    """Compare the domain names of all certificates."""
    first: dict[str, str] = {}
    for path, endpoint in _endpoints(environment):
        certificate = endpoint.exposure.certificate
        taken = first.setdefault(certificate.domain_name, path) if certificate else path
        if certificate and taken != path:
            yield Problem(
                path=f"{path}.exposure.certificate.domain_name",
                message=f"{taken} has the same domain name",
                value=certificate.domain_name,
                limit="one endpoint",
                fix="give each endpoint a domain name of its own",
            )
