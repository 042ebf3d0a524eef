"""What the inference operator makes of an endpoint, and by what it is known."""

import re
from typing import Any, Final

from dpd.backends.operator import resource as r
from dpd.backends.operator.build import build
from dpd.backends.signs import DefinitionSigns, KnownText, LogSigns, ObjectSigns, PodSigns, RoleSigns, Signs, set_fields
from dpd.backends.site import Site
from dpd.backends.workload import EFA, GPU
from dpd.catalog.operator import Operator, operator
from dpd.catalog.runtime_versions import huge_pages
from dpd.environment.endpoint import Endpoint, Role
from dpd.environment.names import OPERATOR_NAMESPACE, OPERATOR_ROLE_PREFIX, OPERATOR_SERVICE_ACCOUNT, EndpointNames, Names

_SPECS: Final = {"prefill": "prefillSpec", "decode": "decodingSpec"}
_QUANTITY: Final = re.compile(r"([0-9]+)(Ki|Mi|Gi|Ti)?")
_MEBIBYTES: Final = {"Ki": 1 / 1024, "Mi": 1, "Gi": 1024, "Ti": 1024 * 1024, None: 1 / 1024**2}


def signs(endpoint: Endpoint, site: Site) -> Signs:
    """The signs of an endpoint, read from its finished object, so that a raw override is expected too. Raises as ``build``."""
    facts = operator()
    body = build(endpoint, site)
    disaggregated = body["spec"].get("pdSpec") or {}
    workers = {name: _worker(endpoint, name, role, disaggregated.get(_SPECS[name]) or {}, facts) for name, role in endpoint.roles}
    return Signs(
        path=facts.invocation_paths[endpoint.routing.api],
        pods={**workers, "router": _router(endpoint, facts)},
        resources=(
            ObjectSigns(
                group=r.GROUP,
                version=_version(),
                plural=r.PLURAL,
                name=body["metadata"]["name"],
                state=facts.status["state"],
                ready=facts.status["ready"],
                failed=tuple(facts.status["failed"]),
                message=facts.status["message"],
                must_have=(*(f"spec.pdSpec.{spec}" for spec in _SPECS.values()), "spec.intelligentRoutingSpec"),
            ),
        ),
        definitions=(DefinitionSigns(name=f"{r.PLURAL}.{r.GROUP}", version=_version(), fields=set_fields([body])),),
        logs=LogSigns(decision=facts.log_signatures["decision"], retrieved=facts.log_signatures["retrieved"]),
        patterns=tuple(KnownText(**known) for known in facts.known_texts),
        remedies=facts.remedies,
        characters_per_token=facts.characters_per_token,
        chunk_tokens=_chunk_tokens(endpoint, facts),
    )


def roles(names: Names) -> tuple[RoleSigns, ...]:
    """The operator's execution role."""
    account = f"system:serviceaccount:{OPERATOR_NAMESPACE}:{OPERATOR_SERVICE_ACCOUNT}"
    return (RoleSigns(names.operator_role, OPERATOR_ROLE_PREFIX, "sagemaker.amazonaws.com", account),)


def _version() -> str:
    return r.API_VERSION.rpartition("/")[2]


def _worker(endpoint: Endpoint, name: str, role: Role, spec: dict[str, Any], facts: Operator) -> PodSigns:
    workload = EndpointNames.of(endpoint).workload(name)
    asked = (spec.get("resources") or {}).get("requests") or {}
    replicas = int(spec.get("replicas", role.replicas))
    return PodSigns(
        namespace=endpoint.namespace,
        name_prefix=f"{workload}-",
        container=workload,
        # While the load is low, a role that scales has as few pods as it may have; the gate needs one to ask.
        replicas=max(1, min(replicas, role.autoscaling.min_replicas)) if role.autoscaling else replicas,
        containers=facts.containers[name],
        port=facts.ports["server"],
        labels={facts.role_label: name},
        gpus=_amount(asked.get(GPU)),
        efa=_amount(asked.get(EFA)),
        hugepages_mib=_mebibytes(asked.get(huge_pages()["resource"])),
        role_log=facts.log_signatures[f"{name}_role"],
        role_settings=facts.role_settings[name],
        role_label=f"{facts.role_label}={name}",
    )


def _router(endpoint: Endpoint, facts: Operator) -> PodSigns:
    names = EndpointNames.of(endpoint)
    return PodSigns(
        namespace=OPERATOR_NAMESPACE,
        name_prefix=f"{names.router}-",
        container=facts.router_container,
        replicas=1,
        containers=facts.containers["router"],
        port=facts.ports["router"],
        service=names.routing_service,
        service_port=facts.ports["service"],
    )


def _chunk_tokens(endpoint: Endpoint, facts: Operator) -> int:
    said = endpoint.environment.get(facts.chunk_tokens["variable"])
    return int(said) if isinstance(said, str) and said.isdecimal() and int(said) else int(facts.chunk_tokens["default"])


def _amount(quantity: Any) -> int:
    text = str(quantity or 0)
    return int(text) if text.isdecimal() else 0


def _mebibytes(quantity: Any) -> int:
    found = _QUANTITY.fullmatch(str(quantity or 0))
    return int(int(found[1]) * _MEBIBYTES[found[2]]) if found else 0
