"""One environment as a CDK stage: the only place that sees the whole environment file, and hands each stack what it needs."""

from collections.abc import Mapping
from itertools import pairwise
from pathlib import Path
from typing import Any, Final

import aws_cdk as cdk
from aws_cdk import aws_logs as logs
from constructs import Construct

from charts.render import Rendered
from dpd.checks.network import closed
from dpd.environment.cluster import PublicAccess
from dpd.environment.environment import Environment
from dpd.environment.names import ADDONS, EKS, GATE, HYPERPOD, NETWORK, OBSERVE, SERVING, STORAGE, WEIGHTS, Names
from dpd.environment.storage import ExistingKey, Storage
from dpd.gate.digest import digest
from dpd.gate.spec import document
from stacks import outputs
from stacks.addons import AddOnsStack, Needs
from stacks.constructs.text_upload import texts
from stacks.eks import EksStack
from stacks.gate import GateStack
from stacks.hyperpod import HyperPodStack
from stacks.network import NetworkStack
from stacks.observe import ObserveStack, Watching
from stacks.serving import ServingStack
from stacks.storage import StorageStack

_LIFECYCLE: Final = Path(__file__).parents[1] / "lifecycle"
_STATEFUL: Final = frozenset({NETWORK, STORAGE, EKS, HYPERPOD})
_LOG_RETENTION: Final = logs.RetentionDays.THREE_MONTHS


def _node_settings(storage: Storage) -> str:
    """The switches of the lifecycle script, in place of the file that is shipped beside it."""
    return f"lustre_efa={'on' if storage.lustre and storage.lustre.efa else 'off'}\n"


class EnvironmentStage(cdk.Stage):
    """Network, storage, EKS, HyperPod, add-ons, endpoints and the health gate of one environment, deployed in this order.

    ``rendered`` are the manifests that a reviewer reads, the same that the stacks apply.
    """

    def __init__(self, scope: Construct, environment: Environment, rendered: Rendered) -> None:
        names = Names.of(environment)
        super().__init__(scope, names.stage, env=cdk.Environment(account=environment.account, region=environment.region))
        self.environment: Final = environment
        self._names = names
        self._tags = {**environment.tags, "app": environment.app, "environment": environment.name}
        cluster, storage = environment.cluster, environment.storage
        self.rendered: Final = rendered

        network = NetworkStack(
            self,
            NETWORK,
            network=environment.network,
            names=names,
            key_arn=storage.encryption_key.existing if isinstance(storage.encryption_key, ExistingKey) else None,
            **self._stack(NETWORK),
        )
        stored = StorageStack(
            self,
            STORAGE,
            storage=storage,
            names=names,
            network=network.values,
            lifecycle_scripts={**texts(_LIFECYCLE), "settings.conf": _node_settings(storage)},
            **self._stack(STORAGE),
        )
        eks = EksStack(
            self,
            EKS,
            cluster_name=names.eks_cluster,
            kubernetes_version=cluster.kubernetes_version,
            api_access=cluster.api_access if isinstance(cluster.api_access, PublicAccess) else None,
            admin_role_arns=cluster.admin_role_arns,
            add_ons=cluster.add_ons,
            existing=cluster.existing,
            raw=cluster.raw.eks,
            prerequisites=[manifest.body for manifest in rendered.cluster],
            network_policies=any(manifest.kind == "NetworkPolicy" for group in rendered.endpoints.values() for manifest in group),
            network=network.values,
            key=stored.values.key,
            log_retention=_LOG_RETENTION,
            **self._stack(EKS),
        )
        hyperpod = HyperPodStack(
            self,
            HYPERPOD,
            cluster_name=names.hyperpod_cluster,
            groups=cluster.groups,
            node_recovery=cluster.node_recovery,
            tiered_storage_memory_percent=cluster.tiered_storage_memory_percent,
            image_release_version=cluster.image_release_version,
            raw=cluster.raw.hyperpod,
            network=network.values,
            storage=stored.values,
            eks=eks.values,
            after=[stored.values.lifecycle_upload, *([eks.prerequisites] if eks.prerequisites else [])],
            **self._stack(HYPERPOD),
        )
        addons = AddOnsStack(
            self,
            ADDONS,
            operator_role_name=names.operator_role,
            kubernetes_version=cluster.kubernetes_version,
            hyperpod_cluster_arn=hyperpod.cluster_arn,
            groups=cluster.groups,
            add_ons=cluster.add_ons,
            needs=Needs.of(environment.endpoints, cluster.add_ons),
            network=network.values,
            storage=stored.values,
            eks=eks.values,
            log_retention=_LOG_RETENTION,
            **self._stack(ADDONS),
        )
        serving = ServingStack(self, SERVING, rendered=rendered, lustre=stored.values.lustre, eks=eks.values, **self._stack(SERVING))
        chain: list[cdk.Stack] = [network, stored, eks, hyperpod, addons, serving]
        if environment.observe.metrics != "none":
            seen = ObserveStack(
                self,
                OBSERVE,
                observe=environment.observe,
                watching=Watching.of(environment),
                monitors=rendered.observe,
                alarms=names.alarms,
                network=network.values,
                storage=stored.values,
                eks=eks.values,
                log_retention=_LOG_RETENTION,
                **self._stack(OBSERVE),
            )
            chain.append(seen)
        if environment.gate.deploy:
            gate = GateStack(
                self,
                GATE,
                spec=document(environment),
                digest=digest(environment),
                readers=rendered.gate,
                alarms=names.alarms,
                schedule_minutes=environment.gate.schedule_minutes,
                notify=environment.gate.notify,
                hyperpod_cluster_arn=hyperpod.cluster_arn,
                network=network.values,
                storage=stored.values,
                eks=eks.values,
                log_retention=_LOG_RETENTION,
                **self._stack(GATE),
            )
            chain.append(gate)
        _in_order(*chain)
        if storage.staging:
            from stacks.weights import WeightsStack  # noqa: PLC0415 - most environments have none, and CodeBuild's module is large

            weights = WeightsStack(
                self,
                WEIGHTS,
                staging=storage.staging,
                project_name=names.stack(WEIGHTS),
                storage=stored.values,
                inside=network.values if closed(environment) else None,
                log_retention=_LOG_RETENTION,
                **self._stack(WEIGHTS),
            )
            # Beside the cluster, not behind it: weights can be there before a node is.
            weights.add_stack_dependency(stored)
        outputs.storage(stored, model_bucket_name=stored.values.model_bucket.name, lustre=stored.values.lustre)
        outputs.kubeconfig(eks, eks.values.name)
        outputs.hyperpod(hyperpod, hyperpod.cluster_arn)
        outputs.endpoints(serving, environment.endpoints)
        tags = cdk.Tags.of(self)
        for key, value in self._tags.items():
            tags.add(key, value)

    def _stack(self, part: str) -> Mapping[str, Any]:
        qualifier = self.environment.bootstrap_qualifier
        return {
            **({"synthesizer": cdk.DefaultStackSynthesizer(qualifier=qualifier)} if qualifier else {}),
            "stack_name": self._names.stack(part),
            "termination_protection": self.environment.termination_protection and part in _STATEFUL,
            "tags": self._tags,
        }


def _in_order(*stacks: cdk.Stack) -> None:
    """Each stack after the one before it, whether or not it refers to it: add-ons wait for nodes that no template names."""
    for before, after in pairwise(stacks):
        after.add_stack_dependency(before)
