"""Runs in an environment that has vLLM or LMCache, and not this project: jobs on standard input, answers on standard output.

A job is ``{"kind": "serve" | "flags" | "lmcache", …}``, an answer what that parser said. What the software prints goes to
standard error.
"""

import contextlib
import importlib
import io
import json
import logging
import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any


def serve(job: dict[str, Any]) -> list[str]:
    """Errors of vLLM's own parser for one argument list, and of its registry for the connectors in it."""
    from vllm.distributed.kv_transfer.kv_connector.factory import KVConnectorFactory

    parser, validate = _parser()
    said = io.StringIO()
    try:
        with contextlib.redirect_stderr(said):
            found = parser.parse_args(job["arguments"])
            validate(found)
    except SystemExit:
        return [said.getvalue().strip().rpartition("error: ")[2]]
    except Exception as error:  # the parser's own validators raise what they like
        return [f"{type(error).__name__}: {error}"]
    transfer = getattr(found, "kv_transfer_config", None)
    names = (
        _connectors({"kv_connector": transfer.kv_connector, "kv_connector_extra_config": transfer.kv_connector_extra_config})
        if transfer
        else []
    )
    return [f"no connector is called {name}" for name in names if name not in KVConnectorFactory._registry]


def _connectors(config: dict[str, Any]) -> list[str]:
    inner = (config.get("kv_connector_extra_config") or {}).get("connectors", [])
    return [config["kv_connector"], *(name for item in inner for name in _connectors(item))]


def _parser() -> tuple[Any, Callable[[Any], None]]:
    """The server's parser and what validates its result. The module has moved twice; only one has the class."""
    import vllm
    from vllm.utils.argparse_utils import FlexibleArgumentParser

    package = Path(vllm.__path__[0])
    (place,) = (path for path in sorted(package.glob("entrypoints/**/*.py")) if "class FrontendArgs" in path.read_text())
    module = importlib.import_module(".".join(place.relative_to(package.parent).with_suffix("").parts))
    return module.make_arg_parser(FlexibleArgumentParser()), module.validate_parsed_serve_args


def flags(_: dict[str, Any]) -> dict[str, Any]:
    """Every flag of the real parser: its names, its choices, and how many values it takes."""
    parser, _validate = _parser()
    return {
        action.option_strings[0]: {
            "names": sorted(action.option_strings),
            "choices": sorted(str(choice) for choice in action.choices or () if choice not in (None, "None")),
            "values": action.nargs,
        }
        for action in parser._actions
        if action.option_strings and action.dest != "help"
    }


def lmcache(job: dict[str, Any]) -> list[str]:
    """What LMCache's loader and its validation complain of, with the variables of one container."""
    for name in [name for name in os.environ if name.startswith("LMCACHE_")]:
        del os.environ[name]
    os.environ.update(job["variables"])
    from lmcache.v1.config import LMCacheEngineConfig

    complaints: list[str] = []
    handler = logging.Handler(logging.WARNING)
    handler.emit = lambda record: complaints.append(record.getMessage())  # type: ignore[method-assign]
    for logger in [
        logging.getLogger(),
        *(logging.getLogger(name) for name in logging.root.manager.loggerDict if name.startswith("lmcache")),
    ]:
        logger.addHandler(handler)
    try:
        LMCacheEngineConfig.from_env().validate()
    except Exception as error:  # its validation is made of asserts without a text
        complaints.append(f"{type(error).__name__}: {error}")
    return complaints


def main() -> None:
    """Answer every job, in order."""
    out = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    kinds = {"serve": serve, "flags": flags, "lmcache": lmcache}
    json.dump([kinds[job["kind"]](job) for job in json.load(sys.stdin)], out)


main()
