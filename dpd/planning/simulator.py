"""The one door to NVIDIA's serving simulator (extra ``sim``): a pool of equal workers serves requests, token by token.

``dynamo._core`` is private and its simulator experimental, hence exact pins and golden tests. What it does not model stays out of
here: a KV link that several hand-overs share and the routing threshold, which it accepts and ignores, are in ``two_stage``.
"""

import itertools
import json
import logging
import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from types import TracebackType
from typing import Any, Final, Self

from dpd.catalog import gpus
from dpd.planning.calibration import Calibration
from dpd.planning.candidate import Case, Request
from dpd.planning.known_models import bundled, missing, path

BLOCK_TOKENS: Final = 64
TRACE_BLOCK_TOKENS: Final = 512
_TIE_MS: Final = 1e-6
"""Arrivals at the same moment are kept apart by this much, since records come back without a number."""
_OWN_BLOCKS: Final = 1 << 40
"""Ids of blocks that nothing shares start here."""


class SimulatorError(RuntimeError):
    """The simulator cannot answer; the text says why and what to do."""


@dataclass(frozen=True, slots=True)
class Pool:
    """Equal workers behind a round-robin router. ``chunk_tokens`` and ``most_sequences`` as vLLM's limits of a step."""

    workers: int
    tensor_parallel: int
    chunk_tokens: int
    most_sequences: int


@dataclass(frozen=True, slots=True)
class Served:
    """When a request was admitted, got its first and its last token, on the clock of the arrivals, and by which worker."""

    worker: int
    admitted_ms: float
    first_token_ms: float
    last_token_ms: float

    def later(self, by_ms: float) -> "Served":
        """The same on another clock."""
        return Served(self.worker, self.admitted_ms + by_ms, self.first_token_ms + by_ms, self.last_token_ms + by_ms)


class Simulator:
    """A case, ready to be simulated. A context manager: it keeps traces in a folder that it removes. May be used from threads."""

    def __init__(self, case: Case, calibration: Calibration) -> None:
        """Raise ``SimulatorError`` when there is no simulator for the case."""
        if why := missing(case):
            raise SimulatorError(why)
        os.environ.setdefault("DYN_LOG", "error")
        logging.getLogger("aiconfigurator_core").setLevel(logging.ERROR)
        self.case, self._calibration = case, calibration
        self._folder = TemporaryDirectory(prefix="dpd-plan-")
        self._numbers = itertools.count()
        self._blocks: dict[tuple[int, int], int] = {}
        gpu, model = gpus.find(case.instance.gpu), case.model
        assert gpu is not None
        self._system, self._version = gpu.system, gpu.engine_version  # the simulator's own default version has no tables
        self._model = path(model)
        self._types: dict[str, Any] = {"kv_cache_dtype": "fp8"} if case.kv_dtype.startswith("fp8") else {}
        self._types |= {"gemm_dtype": "fp8"} if not model.experts and model.weight_dtype_bytes == 1 and not bundled(model) else {}

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self._folder.cleanup()

    def kv_tokens(self, tensor_parallel: int, chunk_tokens: int) -> int:
        """Tokens of KV cache on one worker. Raises ``SimulatorError`` when the weights leave no room."""
        from dynamo._internal.aic import estimate_num_gpu_blocks  # noqa: PLC0415

        key = (tensor_parallel, chunk_tokens)
        if key not in self._blocks:
            experts = {"moe_tp_size": tensor_parallel, "moe_ep_size": 1} if self.case.model.experts else {}
            try:
                self._blocks[key] = estimate_num_gpu_blocks(
                    "vllm", self._system, self._model, tensor_parallel, BLOCK_TOKENS, chunk_tokens,
                    gpu_memory_utilization=self.case.gpu_memory_utilization, backend_version=self._version, **experts, **self._types,
                )  # fmt: skip
            except (ValueError, RuntimeError) as error:
                raise SimulatorError(f"{self.case.model.name} at tensor parallel {tensor_parallel}: {error}") from None
        return self._blocks[key] * BLOCK_TOKENS

    def _engine(self, pool: Pool) -> Any:
        from dynamo._core import MockEngineArgs  # noqa: PLC0415

        experts: dict[str, Any] = {"aic_moe_tp_size": pool.tensor_parallel, "aic_moe_ep_size": 1} if self.case.model.experts else {}
        return MockEngineArgs(
            engine_type="vllm", block_size=BLOCK_TOKENS, worker_type="aggregated",
            num_gpu_blocks=self.kv_tokens(pool.tensor_parallel, pool.chunk_tokens) // BLOCK_TOKENS,
            max_num_seqs=pool.most_sequences, max_num_batched_tokens=pool.chunk_tokens,
            speedup_ratio=self._calibration.prefill_speed,
            decode_speedup_ratio=self._calibration.decode_speed / self._calibration.prefill_speed,
            aic_backend="vllm", aic_system=self._system, aic_backend_version=self._version, aic_model_path=self._model,
            aic_tp_size=pool.tensor_parallel, **experts, **{f"aic_{name}": kind for name, kind in self._types.items()},
        )  # fmt: skip

    def run(self, pool: Pool, requests: Sequence[Request]) -> list[Served]:
        """Serve requests, which are in the order of their arrivals. Raises ``SimulatorError`` for what the tables do not hold."""
        from dynamo._core import run_mocker_trace_replay  # noqa: PLC0415

        begin = requests[0].arrival_ms
        trace = Path(self._folder.name, f"{next(self._numbers)}.jsonl")
        trace.write_text("".join(_line(number, request, begin) for number, request in enumerate(requests)), encoding="utf-8")
        try:
            result = run_mocker_trace_replay(
                [str(trace)], extra_engine_args=self._engine(pool), num_workers=pool.workers, trace_block_size=TRACE_BLOCK_TOKENS,
                capture_per_request=True, capture_planner_details=False,
            )  # fmt: skip
        except Exception as error:  # the extension raises bare exceptions
            raise SimulatorError(f"{self.case.model.name} on {self.case.instance.gpu}: {error}") from None
        finally:
            trace.unlink()
        records = sorted(result.per_request, key=lambda record: record["arrival_time_ms"])
        if len(records) != len(requests):
            raise SimulatorError(f"the simulator answered {len(records)} of {len(requests)} requests")
        return [
            Served(one["decode_worker_idx"], one["first_admit_ms"], one["first_token_ms"], one["last_token_ms"]).later(begin)
            for one in records
        ]


def _line(number: int, request: Request, begin_ms: float) -> str:
    count = -(-request.input_tokens // TRACE_BLOCK_TOKENS)
    first = _OWN_BLOCKS + (number << 20)
    blocks = [*request.prompt_blocks[:count], *range(first, first + count - len(request.prompt_blocks))]
    row = {
        "timestamp": request.arrival_ms - begin_ms + number * _TIE_MS,
        "input_length": request.input_tokens,
        "output_length": request.output_tokens,
        "hash_ids": blocks,
    }
    return json.dumps(row) + "\n"
