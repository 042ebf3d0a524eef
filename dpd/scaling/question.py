"""From an environment to the replay: the endpoint as pods and link, its policies, and how far each role may grow."""

from dataclasses import dataclass

from dpd.environment.endpoint import Autoscaling, Endpoint
from dpd.environment.environment import Environment
from dpd.scaling import policy as policies
from dpd.scaling.compare import Replay, peak_rate, rehearse
from dpd.scaling.day import Day
from dpd.scaling.policy import Policy
from dpd.scaling.replay import System
from dpd.scaling.velocity import Pod, of_role
from dpd.sizing.fleet import RoleOnGpus, roles_on_gpus
from dpd.sizing.pod import efa_share
from dpd.sizing.startup import startup_budget_seconds
from dpd.sizing.transfer import kv_link

_PEAK_SHARE = 0.9
"""Of what all pods take, the burst of a day for which nobody gave a rate."""
_LONGEST_SHARE = 0.9


class ReplayError(ValueError):
    """A day that cannot be replayed. ``path`` is the field to change, ``fix`` how."""

    def __init__(self, path: str, message: str, fix: str) -> None:
        super().__init__(message)
        self.path, self.fix = path, fix


@dataclass(frozen=True, slots=True)
class Ask:
    """What is not in the file. Without a rate the day is as busy as all pods can bear; ``ceilings`` are pods of prefill and of decode."""

    input_tokens: float = 4000
    output_tokens: float = 300
    peak_rate: float | None = None
    ceilings: tuple[int, int] | None = None
    start_seconds: float | None = None
    prefill_speed: float = 1.0
    decode_speed: float = 1.0
    link_efficiency: float | None = None
    overhead_seconds: float = 0.0
    seed: int = 0


def replay_of(environment: Environment, index: int, ask: Ask) -> Replay:
    """Replay a day of an endpoint. Raises ``ReplayError``."""
    endpoint = environment.endpoints[index]
    sides = _sides(environment, index)
    system, velocity = _system(endpoint, sides, ask), tuple(_velocity(endpoint, side, ask) for side in sides)
    most = ask.ceilings or tuple(_ceiling(environment, side) for side in sides)
    prefill, decode = (_policy(endpoint, side, speed, count) for side, speed, count in zip(sides, velocity, most, strict=True))
    if ask.input_tokens + ask.output_tokens > endpoint.model.max_model_len:
        asked = ask.input_tokens + ask.output_tokens
        raise ReplayError(
            f"endpoints[{index}].model.max_model_len", f"requests of {asked:,.0f} tokens do not fit {endpoint.model.max_model_len:,}",
            "ask for shorter requests, or raise max_model_len",
        )  # fmt: skip
    longest = _LONGEST_SHARE * endpoint.model.max_model_len
    ordinary = Day.of(peak_rate=1, input_tokens=ask.input_tokens, output_tokens=ask.output_tokens, longest=longest, seed=ask.seed).phases[2]
    rate = ask.peak_rate or _PEAK_SHARE * peak_rate(system, prefill.most, decode.most, ordinary, 1.0)
    day = Day.of(peak_rate=rate, input_tokens=ask.input_tokens, output_tokens=ask.output_tokens, longest=longest, seed=ask.seed)
    return rehearse(day, system, endpoint, prefill, decode, (velocity[0], velocity[1]))


def _sides(environment: Environment, index: int) -> tuple[RoleOnGpus, RoleOnGpus]:
    found = {it.placed.name: it for it in roles_on_gpus(environment) if it.placed.endpoint_path == f"endpoints[{index}]"}
    for name, role in environment.endpoints[index].roles:
        if name not in found:
            path = f"endpoints[{index}].{name}.group"
            raise ReplayError(path, f"group {role.group} does not exist, or has no GPUs that are known", "see: dpd check")
    return found["prefill"], found["decode"]


def _velocity(endpoint: Endpoint, side: RoleOnGpus, ask: Ask) -> float:
    """What the signals divide by: what the file says, else the estimate under what was measured."""
    found, scaling = of_role(endpoint, side.placed.name, side.instance), side.placed.role.autoscaling
    assert found is not None  # _pod has said so
    if scaling and scaling.tokens and scaling.tokens.tokens_per_second:
        return found
    return found * (ask.prefill_speed if side.placed.name == "prefill" else ask.decode_speed)


def _pod(endpoint: Endpoint, side: RoleOnGpus, ask: Ask) -> Pod:
    pod = Pod.of(endpoint, side.placed.name, side.instance, prefill_speed=ask.prefill_speed, decode_speed=ask.decode_speed)
    if pod is None:
        message = f"no speed is known of TP{side.placed.role.tensor_parallel} on {side.instance.gpu} for this model, or it does not fit"
        raise ReplayError(f"{side.placed.path}.tensor_parallel", message, "replay a layout whose speed docs/planning.md lists")
    return pod


def _system(endpoint: Endpoint, sides: tuple[RoleOnGpus, RoleOnGpus], ask: Ask) -> System:
    prefill, decode = (_pod(endpoint, side, ask) for side in sides)
    devices = min(
        efa_share(side.instance, side.placed.role.tensor_parallel) if side.placed.role.efa_devices is None else side.placed.role.efa_devices
        for side in sides
    )
    link = kv_link(sides[1].instance, devices, efficiency=ask.link_efficiency, overhead_seconds=ask.overhead_seconds)
    if not link.gb_per_second:
        path = f"{sides[1].placed.path}.efa_devices"
        raise ReplayError(path, "the pods have no EFA device, so KV would never arrive", "remove efa_devices")
    return System(
        prefill, decode, sides[0].placed.role.tensor_parallel, sides[1].placed.role.tensor_parallel, link,
        threshold_tokens=endpoint.routing.threshold_tokens,
        ttft_seconds=endpoint.objectives.ttft_p99_ms / 1e3,
        itl_seconds=endpoint.objectives.itl_p99_ms / 1e3,
        start_seconds=ask.start_seconds if ask.start_seconds is not None else startup_budget_seconds(endpoint.model.shape),
    )  # fmt: skip


def _ceiling(environment: Environment, side: RoleOnGpus) -> int:
    """What the file allows a role, else as many pods as its group's nodes hold when both roles share them evenly."""
    scaling, role = side.placed.role.autoscaling, side.placed.role
    if scaling is not None:
        return scaling.max_replicas
    sharing = sum(it.placed.role.group == role.group for it in roles_on_gpus(environment))
    return max(role.replicas, side.group.most_nodes * (side.instance.gpus // role.tensor_parallel) // sharing)


def _policy(endpoint: Endpoint, side: RoleOnGpus, velocity: float, most: int) -> Policy:
    """The policy up to a ceiling: what the file says, and defaults for what it does not say."""
    scaling = side.placed.role.autoscaling or Autoscaling(min_replicas=1, max_replicas=most)
    bounded = scaling.model_copy(update={"max_replicas": max(1, scaling.min_replicas, most)})
    return policies.of_role(endpoint, side.placed.name, bounded, velocity)
