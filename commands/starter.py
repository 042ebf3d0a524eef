"""The text of a first environment file. It is written as a person would, with the reasons beside the numbers."""

import json
import os
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from dpd.catalog import kubernetes, network, regions
from dpd.catalog.instances import Instance
from dpd.catalog.models import ModelShape
from dpd.environment.endpoint import Role
from dpd.sizing.starter import Layout

_ENDPOINT_NAME_LENGTH: Final = 30
_ZONES: Final = 2


@dataclass(frozen=True, slots=True)
class Answers:
    """What the user chose."""

    path: Path
    app: str
    account: str
    zone: str
    capacity: str
    model: ModelShape
    config: Path | None
    instance: Instance


def text(answers: Answers, layout: Layout) -> str:
    """The file. Raises ``ValueError`` when no Region is known for the AZ id."""
    region = regions.of_zone(answers.zone)
    if region is None:
        raise ValueError(f"no Region that is known here has the AZ id {answers.zone}")
    model, instance = answers.model, answers.instance
    folder = (model.hub_id or model.name).rpartition("/")[2]
    idle = instance.gpus - layout.tensor_parallel
    group = f"{{instance_type: {instance.type}, count: 1, capacity: {answers.capacity}}}"
    role = f"replicas: 1, tensor_parallel: {layout.tensor_parallel}{_utilization(layout)}"
    room = (
        f"{layout.weights_gib:.1f} GiB of weights on each GPU leave {layout.kv_gib:.1f} GiB for KV; "
        f"a full sequence takes {_gib(layout.kv_gib_per_sequence)}"
    )
    lines = f"""\
{_schema_line(answers.path)}
# {model.name} on one prefill and one decode node of {instance.type}. Every key: docs/configuration.md
version: 1
app: {answers.app}
account: {json.dumps(answers.account)}
region: {region.name}
tags: {{}}   # on every resource, for example {{owner: ml-platform, cost-center: "4711"}}

network:
  vpc_cidr: 10.192.0.0/16
  # All nodes and Lustre live in this one subnet: EFA traffic cannot leave it, and it cannot be made larger later.
  gpu_subnet: {{availability_zone_id: {answers.zone}, cidr: 10.1.0.0/16}}
  # EKS wants two more AZs for its control plane. List yours: aws ec2 describe-availability-zones --region {region.name}
  control_plane_availability_zone_ids: [{", ".join(_other_zones(answers.zone))}]
  egress: {{nat_gateways: 1, interface_endpoints: false}}   # billed by the hour

cluster:
  kubernetes_version: "{_kubernetes_version()}"
  api_access: private   # or {{public_cidrs: [203.0.113.0/24]}}
  admin_role_arns: []   # IAM roles that may use kubectl, for example [arn:aws:iam::{answers.account}:role/ml-platform]
  groups:
    system: {{instance_type: ml.c5.4xlarge, count: 2}}   # DNS, webhooks, the operator, routers
    # Billed while they stand. Capacity is on_demand, spot, or {{training_plan_arn: ..., availability_zone_id: {answers.zone}}}
    prefill: {group}
    decode: {group}

storage:
  models: {{bucket: create}}   # or {{bucket: {{existing: my-bucket, region: {region.name}}}}}

endpoints:
  - name: {_endpoint_name(model.name)}
    namespace: inference
    backend: operator
    model:
      {_model_line(answers)}
      source: {{s3: {{prefix: {_prefix(folder)}/}}}}   # upload config.json and the safetensors files here
      max_model_len: {layout.max_model_len}   # the model has {model.max_positions:,} positions
    # {room}.
    prefill: {{group: prefill, {role}}}
    decode: {{group: decode, {role}}}
    routing: {{threshold_tokens: {layout.threshold_tokens}, strategy: prefix_aware}}   # shorter prompts go straight to decode
    # The buffer is GPU memory on each decode rank; the longest prompt takes {_gib(layout.buffer_gib_per_prompt)} of it.
    kv: {{buffer_gib: {layout.buffer_gib}, cpu_tier: true}}
    objectives: {{ttft_p99_ms: 2000, itl_p99_ms: 50}}   # yours to set: gate and alarms read them
"""
    if idle:
        note = f"    # Each pod takes {layout.tensor_parallel} of {instance.gpus} GPUs: raise replicas to use the other {idle}.\n"
        lines = lines.replace("    prefill: {group: prefill,", f"{note}    prefill: {{group: prefill,")
    return lines


def _schema_line(path: Path) -> str:
    here = Path("docs/environment.schema.json")
    place = os.path.relpath(here, path.parent) if here.is_file() else "../docs/environment.schema.json"
    return f"# yaml-language-server: $schema={Path(place).as_posix()}"


def _model_line(answers: Answers) -> str:
    if answers.config is None:
        return f"catalog: {answers.model.name}"
    return f"config: {json.dumps(Path(os.path.relpath(answers.config, answers.path.parent)).as_posix())}"


def _utilization(layout: Layout) -> str:
    default = Role.model_fields["gpu_memory_utilization"].default
    return "" if layout.gpu_memory_utilization == default else f", gpu_memory_utilization: {layout.gpu_memory_utilization}"


def _gib(size: float) -> str:
    return f"{size:.1f} GiB" if size >= 1 else f"{size * 1024:.0f} MiB"


def _prefix(text: str) -> str:
    return re.sub(r"[^A-Za-z0-9_.-]+", "-", text) or "model"


def _endpoint_name(model: str) -> str:
    name = re.sub(r"[^a-z0-9]+", "-", model.lower()).strip("-")
    return (name if name[:1].isalpha() else f"model-{name}")[:_ENDPOINT_NAME_LENGTH].strip("-")


def _other_zones(zone: str) -> list[str]:
    """Two other AZ ids of the Region. Numbers are not always 1, 2, 3: the file says so."""
    prefix = zone.rpartition("-")[0]
    refused = network.control_plane_refused_zones()
    others = (other for number in range(1, 7) if (other := f"{prefix}-az{number}") != zone and other not in refused)
    return [other for other, _ in zip(others, range(_ZONES), strict=False)]


def _kubernetes_version() -> str:
    return [version.version for version in kubernetes.all_versions() if version.hyperpod][-1]
