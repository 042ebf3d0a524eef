"""Which files of a repository are the model."""

import json
from collections.abc import Iterable

INDEX = "model.safetensors.index.json"
_WEIGHTS = ".safetensors"
_OTHER_FORMATS = (".bin", ".pth", ".pt", ".h5", ".msgpack", ".onnx", ".onnx_data", ".gguf", ".ot", ".tflite")


def is_model_file(path: str) -> bool:
    """Whether a file belongs to the model: not another format of its weights, not Git's own."""
    return not path.endswith(_OTHER_FORMATS) and not path.rpartition("/")[2].startswith(".git")


def shards(index: bytes) -> frozenset[str]:
    """The files that an index names. Raises ``ValueError`` when it is no index."""
    try:
        found = frozenset(json.loads(index)["weight_map"].values())
    except (KeyError, TypeError, AttributeError) as error:
        raise ValueError("it names no weights") from error
    if not found or not all(isinstance(name, str) for name in found):
        raise ValueError("it names no weights")
    return found


def tensor_bytes(index: bytes) -> int:
    """Bytes of all tensors together, as the index states them; 0 where it does not."""
    stated = json.loads(index).get("metadata", {})
    size = stated.get("total_size", 0) if isinstance(stated, dict) else 0
    return size if isinstance(size, int) else 0


def chosen(paths: Iterable[str], named: frozenset[str] | None) -> list[str]:
    """The files to copy. Where an index names the weights, other weights (the same ones, in one piece) stay behind."""
    return [path for path in paths if is_model_file(path) and (named is None or not path.endswith(_WEIGHTS) or path in named)]


def has_weights(paths: Iterable[str]) -> bool:
    """Whether there is something to serve."""
    return any(path.endswith(_WEIGHTS) for path in paths)
