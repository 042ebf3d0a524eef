"""``python -m bench.speeds``: fit the speeds of the closed form to NVIDIA's measured tables again (needs the extra ``sim``).

For every GPU, family of models and tensor parallel size: the times of single prompts and of decode steps are asked of
aiconfigurator-core, and the five factors of ``dpd.sizing.roofline`` are the non-negative ones with the least squared relative error.
"""

import csv
import io
import itertools
import logging
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

import numpy as np
from scipy.optimize import nnls

from dpd.catalog import gpus
from dpd.catalog.gpus import WORK, Gpu
from dpd.catalog.models import ModelShape
from dpd.environment.huggingface import shape_of
from dpd.sizing.memory import kv_bytes_per_token
from dpd.sizing.roofline import Parts, decode_parts, family, prefill_parts

OUT: Final = Path(__file__).parent.parent / "dpd" / "catalog" / "data" / "speeds.csv"
MODELS: Final = {
    "meta-llama/Meta-Llama-3.1-8B": {}, "meta-llama/Meta-Llama-3.1-70B": {}, "meta-llama/Meta-Llama-3.1-405B": {},
    "Qwen/Qwen3-8B": {}, "Qwen/Qwen3-32B": {},
    "meta-llama/Meta-Llama-3.1-8B fp8": {"gemm_dtype": "fp8"}, "meta-llama/Meta-Llama-3.1-70B fp8": {"gemm_dtype": "fp8"},
    "Qwen/Qwen3-32B fp8": {"gemm_dtype": "fp8"},
    "openai/gpt-oss-120b": {}, "Qwen/Qwen3-235B-A22B": {}, "Qwen/Qwen3-30B-A3B": {},
    "deepseek-ai/DeepSeek-V3": {}, "deepseek-ai/DeepSeek-R1": {},
}  # fmt: skip
TENSOR_PARALLEL: Final = (1, 2, 4, 8)
PROMPTS: Final = (256, 512, 1024, 2048, 4096, 8192, 16384, 32768)
CHUNKS: Final = ((512, 4096), (1024, 8192), (2048, 6144), (2048, 16384))
BATCHES: Final = (1, 2, 4, 8, 16, 32, 64, 128)
CONTEXTS: Final = (512, 1024, 2048, 4096, 8192, 16384, 32768)
KV_SHARE: Final = 0.9
JUDGED: Final = (1024, 2048, 4096, 8192, 16384)
"""Prompts over which the stated error of prefill is the worst; the fit is over all."""
Sample = tuple[Parts, float]


def _shape(name: str) -> ModelShape:
    import aiconfigurator_core  # noqa: PLC0415

    folder = Path(aiconfigurator_core.__file__).parent / "model_configs"
    hub = name.removesuffix(" fp8")
    shape = shape_of(folder / f"{hub.replace('/', '--')}_config.json")
    if name.endswith(" fp8"):
        return replace(shape, weight_dtype_bytes=1.0, weight_bytes=shape.parameters)
    return shape


def _samples(model: ModelShape, gpu: Gpu, ranks: int, session: Any) -> tuple[list[Sample], list[Sample]]:
    prefill, decode = [], []
    for tokens, cached in [*((tokens, 0) for tokens in PROMPTS), *CHUNKS]:
        prefill.append((prefill_parts(model, gpu, ranks, tokens, cached), session.predict_prefill(1, tokens, cached) / 1e3))
    room = KV_SHARE * _memory(gpu) * ranks - model.weight_bytes
    for batch, context in itertools.product(BATCHES, CONTEXTS):
        if batch * context * kv_bytes_per_token(model) <= room:
            seconds = session.predict_decode(batch, context, 2) / 1e3
            decode.append((decode_parts(model, gpu, ranks, batch, context), seconds))
    return prefill, decode


def _memory(gpu: Gpu) -> float:
    from dpd.catalog import instances  # noqa: PLC0415

    return max((found.gpu_memory_mib or 0) << 20 for name in instances.types() if (found := instances.find(name)) and found.gpu == gpu.name)


def _fit(samples: list[Sample], judged: list[int]) -> tuple[list[float], float]:
    parts = np.array([part for part, _ in samples])
    seconds = np.array([taken for _, taken in samples])
    factors, _ = nnls(parts / seconds[:, None], np.ones(len(seconds)))
    factors = np.array([float(f"{factor:.4g}") for factor in factors])
    return list(factors), float(np.max(np.abs(parts @ factors / seconds - 1)[judged]))


def rows() -> Iterator[dict[str, object]]:
    """One row for each GPU, family and tensor parallel size that the tables know."""
    from dynamo._internal.aic import create_session  # noqa: PLC0415

    logging.disable(logging.WARNING)
    for gpu in filter(None, map(gpus.find, gpus.names())):
        found: dict[tuple[str, int], tuple[list[Sample], list[Sample]]] = {}
        for (name, options), ranks in itertools.product(MODELS.items(), TENSOR_PARALLEL):
            model = _shape(name)
            if model.weight_bytes > KV_SHARE * _memory(gpu) * ranks:
                continue
            experts = {"moe_tp_size": ranks, "moe_ep_size": 1} if model.experts else {}
            try:
                session = create_session("vllm", gpu.system, name.removesuffix(" fp8"), ranks, gpu.engine_version, **options, **experts)
                prefill, decode = _samples(model, gpu, ranks, session)
            except Exception as error:  # a model that the tables do not know on this GPU is left out
                print(f"left out: {gpu.name} {name} x{ranks}: {str(error)[:90]}")
                continue
            into = found.setdefault((family(model), ranks), ([], []))
            into[0].extend(prefill)
            into[1].extend(decode)
        for (kind, ranks), (prefill, decode) in sorted(found.items()):
            each = len(PROMPTS) + len(CHUNKS)
            judged = [at for at in range(len(prefill)) if at % each < len(PROMPTS) and PROMPTS[at % each] in JUDGED]
            (reading, reading_error), (writing, writing_error) = _fit(prefill, judged), _fit(decode, list(range(len(decode))))
            yield {
                "gpu": gpu.name, "family": kind, "tensor_parallel": ranks,
                **{f"prefill_{part}": factor for part, factor in zip(WORK, reading, strict=True)},
                **{f"decode_{part}": factor for part, factor in zip(WORK, writing, strict=True)},
                "prefill_worst_error": round(reading_error, 3), "decode_worst_error": round(writing_error, 3),
                "samples": len(prefill) + len(decode), "sources": "aic-tables",
            }  # fmt: skip


def main() -> None:
    """Write the table."""
    text = io.StringIO()
    table = list(rows())
    writer = csv.DictWriter(text, fieldnames=list(table[0]), lineterminator="\n")
    writer.writeheader()
    writer.writerows(table)
    OUT.write_text(text.getvalue(), encoding="utf-8")


if __name__ == "__main__":
    main()
