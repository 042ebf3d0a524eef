"""Whether the simulator can answer for a case, and how a model is described to it."""

import json
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Final

from dpd.catalog import gpus
from dpd.catalog.models import ModelShape
from dpd.planning.candidate import Case

_SIZE_STEP: Final = 16
"""MLP widths are multiples of this."""


def missing(case: Case) -> str:
    """Why the simulator cannot answer for a case; empty when it can."""
    if find_spec("dynamo") is None or find_spec("aiconfigurator_core") is None:
        return "the simulator is not installed: pip install 'hyperpod-dpd[sim]' (Linux, Python 3.11 to 3.13), or make planner"
    gpu = gpus.find(case.instance.gpu)
    if gpu is None or not gpu.system:
        return f"the simulator has no measurements of {case.instance.gpu or 'instances without a GPU'}; it knows {', '.join(gpus.names())}"
    if not bundled(case.model) and (case.model.attention == "mla" or case.model.experts):
        return f"the simulator does not know {case.model.name}, and only a dense model can be described to it"
    return ""


def bundled(model: ModelShape) -> bool:
    """Whether the simulator carries the model's configuration."""
    spec = find_spec("aiconfigurator_core")
    folder = Path((spec and spec.origin) or "").parent / "model_configs"
    return bool(model.hub_id) and (folder / f"{model.hub_id.replace('/', '--')}_config.json").exists()


def config(model: ModelShape) -> dict[str, object]:
    """The ``config.json`` of a dense model. The width of its MLP is what is left of its parameters."""
    heads = model.hidden_size * model.head_dim * 2 * (model.heads + model.kv_heads)
    left = (model.parameters - 2 * model.vocab_size * model.hidden_size) / model.layers - heads
    return {
        "architectures": ["LlamaForCausalLM"],
        "model_type": "llama",
        "hidden_size": model.hidden_size,
        "intermediate_size": _SIZE_STEP * round(left / (3 * model.hidden_size) / _SIZE_STEP),
        "num_hidden_layers": model.layers,
        "num_attention_heads": model.heads,
        "num_key_value_heads": model.kv_heads,
        "head_dim": model.head_dim,
        "vocab_size": model.vocab_size,
        "max_position_embeddings": model.max_positions,
        "torch_dtype": "bfloat16",
    }


_FOLDERS: Final[list[TemporaryDirectory[str]]] = []
"""Folders of described models, removed when the process ends."""


@cache
def path(model: ModelShape) -> str:
    """How the simulator is told of a model: its id, or a folder with its ``config.json``.

    One folder for each model and process: the simulator reads its tables again, for seconds, when the name is new.
    """
    if bundled(model):
        return model.hub_id
    _FOLDERS.append(TemporaryDirectory(prefix="dpd-model-"))
    Path(_FOLDERS[-1].name, "config.json").write_text(json.dumps(config(model)), encoding="utf-8")
    return _FOLDERS[-1].name
