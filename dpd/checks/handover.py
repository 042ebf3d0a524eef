"""Rules about the hand-over of KV: whether the link between the roles carries what prefillers give."""

from collections.abc import Iterator
from typing import Final

from dpd.checks.registry import Context, Problem, check
from dpd.environment.environment import Environment
from dpd.finding import Level
from dpd.sizing.fleet import RoleOnGpus, roles_on_gpus
from dpd.sizing.pod import pod_shape
from dpd.sizing.roofline import Engine
from dpd.sizing.transfer import kv_bytes_moved, kv_link

_DPD: Final = "https://docs.aws.amazon.com/sagemaker/latest/dg/sagemaker-hyperpod-model-deployment-dpd.html"
_PROMPT_TOKENS: Final = 8192
"""A prompt that fills one step of a prefiller: then it gives KV fastest."""
_BUSY: Final = 0.7
"""Busy share from which bursts queue at the link (our choice)."""
_VISIBLE: Final = 0.1
"""Share of a prompt's time from which its transfer is worth a note (our choice)."""


@check(
    "KVL001", "The KV link carries what the prefillers give", level=Level.WARNING,
    why="Every pod has a share of its node's EFA devices. With too few of them, or a fast prefiller, KV queues at the link: the prefill "
        "GPUs wait for it, and adding prefillers does not help.",
    link=_DPD,
    seen_in=("https://github.com/aws/sagemaker-hyperpod-cli/pull/306", "https://github.com/vllm-project/vllm/issues/41814"),
)  # fmt: skip
def _link(environment: Environment, _: Context) -> Iterator[Problem]:
    sides: dict[str, dict[str, RoleOnGpus]] = {}
    for it in roles_on_gpus(environment):
        sides.setdefault(it.placed.endpoint_path, {})[it.placed.name] = it
    for both in sides.values():
        if len(both) == 2:  # noqa: PLR2004
            yield from _between(both["prefill"], both["decode"])


def _between(prefill: RoleOnGpus, decode: RoleOnGpus) -> Iterator[Problem]:
    endpoint, role = prefill.placed.endpoint, prefill.placed.role
    devices = {side.placed.name: pod_shape(side.placed.role, side.instance).efa_devices for side in (prefill, decode)}
    slower = min((prefill, decode), key=lambda side: devices[side.placed.name])
    model, ranks = endpoint.model.shape, role.tensor_parallel
    engine = Engine.of(model, prefill.instance.gpu, ranks, endpoint.kv.dtype)
    link = kv_link(slower.instance, devices[slower.placed.name])
    if engine is None or not link.gb_per_second:
        return
    tokens = min(_PROMPT_TOKENS, endpoint.model.max_model_len)
    seconds, size = engine.prefill_seconds(tokens), kv_bytes_moved(model, tokens, ranks, endpoint.kv.dtype)
    # Prefillers send at the same time, and so many decoders receive.
    senders = prefill.placed.role.replicas / decode.placed.role.replicas if slower is decode else 1
    busy, visible = senders * link.utilisation(size / seconds), link.wire_seconds(size) / seconds
    path = f"{slower.placed.path}.efa_devices"
    message = (
        f"prompts of {tokens:,} tokens give about {size / seconds / 1e9:.1f} GB/s of KV for each prefiller; "
        f"{devices[slower.placed.name]} EFA devices of a {slower.placed.name} pod carry about {link.gb_per_second:.1f}, "
        f"{busy:.0%} busy"
    )
    fix = "remove efa_devices, so that the pod gets the share of its GPUs" if slower.placed.role.efa_devices else "give the pods more GPUs"
    if busy > _BUSY:
        yield Problem(path, message, fix, devices[slower.placed.name], f"at most {_BUSY:.0%} busy")
    elif visible > _VISIBLE:
        more = f"{message}; a hand-over takes {visible:.0%} of the time of its prompt"
        yield Problem(path, more, fix, devices[slower.placed.name], f"at most {_VISIBLE:.0%}", level=Level.INFO)
