"""Rules about secrets: no credential stands in the file, wherever it may be written."""

import json
import re
from collections.abc import Iterator
from typing import Any, Final

from dpd.checks.registry import Context, Problem, check
from dpd.environment.environment import Environment
from dpd.environment.types import Part
from dpd.finding import HIDDEN, looks_like_secret, names_a_secret

_REFERENCE: Final = "use a reference instead: {secret: <name of a Kubernetes Secret>, key: <key in it>}, and revoke what was written here"
_LINK: Final = "https://kubernetes.io/docs/concepts/configuration/secret/"
_SEEN: Final = ("https://github.com/validatedpatterns/rag-llm-gitops/issues/70", "https://github.com/kserve/kserve/issues/3832")

_NO_SECRET_KEYS: Final = frozenset({"key", "topologykey", "partitionkey", "sortkey"})
"""Keys of Kubernetes objects that end like a secret's and name something else."""
_HARMLESS: Final = re.compile(r"(?i:true|false)|[0-9]{1,7}(?:\.[0-9]+)?|arn:\S+")
_NOTHING: Final = frozenset({"", "none", "null", "nil", "~", "undefined", "changeme", "change-me", "todo", "xxx", "placeholder"})
_USER_INFO: Final = re.compile(r"[a-z][a-z0-9+.-]{0,20}://[^/\s:@]{0,256}:[^/\s@]{1,256}@", re.IGNORECASE)
_CAMEL: Final = re.compile(r"(?<=[a-z0-9])(?=[A-Z])")
_ARGUMENT: Final = re.compile(r"args\[[0-9]+\]$")
_FLAG: Final = re.compile(r"--?([A-Za-z0-9_.-]+)(?:[=\s]+(\S.*))?", re.DOTALL)


def texts(value: Any, path: str = "", key: str = "") -> Iterator[tuple[str, str, str]]:
    """Every text that the user wrote as (path, key, text), the user's own keys included.

    ``key`` is empty where the file's types name the place: they say what a value is, and what refers to a Secret.
    """
    if isinstance(value, str):
        yield path, key, value
    elif isinstance(value, Part):
        # A default was not written by the user.
        for field in type(value).model_fields:
            if field in value.model_fields_set:
                yield from texts(getattr(value, field), f"{path}.{field}" if path else field)
    elif isinstance(value, dict):
        yield from _pairs(value, path)
    elif isinstance(value, list | tuple):
        for index, item in enumerate(value):
            yield from texts(item, f"{path}[{index}]", key)


def _pairs(mapping: dict[Any, Any], path: str) -> Iterator[tuple[str, str, str]]:
    # Kubernetes writes a variable as {name: HF_TOKEN, value: hf_...}.
    name = mapping.get("name")
    for key, item in mapping.items():
        text = str(key)
        place = f"{path}.{text}"
        yield place, "", text
        yield from texts(item, place, name if text == "value" and isinstance(name, str) else text)


def _named(environment: Environment) -> Iterator[tuple[str, str]]:
    """Texts whose key, variable name or flag usually holds a credential, as (path, text)."""
    flag = ""
    for path, key, text in texts(environment):
        if _ARGUMENT.search(path):
            match = _FLAG.fullmatch(text)
            if match is None and flag:
                yield path, text
            flag = match[1] if match and match[2] is None and _is_secret_key(match[1]) else ""
            if match and match[2] is not None and _is_secret_key(match[1]):
                yield path, match[2]
        elif key and _is_secret_key(key):
            yield path, text
        # Settings of vLLM and LMCache are often JSON in one text.
        yield from ((path, inner) for key, inner in _in_json(text) if _is_secret_key(key))


def _in_json(text: str) -> Iterator[tuple[str, str]]:
    """Texts with their keys inside a text that is JSON."""
    start = text.find("{")
    try:
        content = json.loads(text[start:]) if start >= 0 else {}
    except (ValueError, RecursionError):
        return
    for _path, key, inner in texts(content):
        if key:
            yield key, inner


def _is_secret_key(key: str) -> bool:
    spelled = _CAMEL.sub("_", key.rsplit("/", 1)[-1]).replace("-", "_")
    return spelled.replace("_", "").lower() not in _NO_SECRET_KEYS and names_a_secret(spelled)


@check(
    "SEC001",
    "No text has the shape of a credential",
    why="The file is committed, printed in templates and stored in the cloud assembly; whoever reads one of them has the credential.",
    link=_LINK,
    seen_in=_SEEN,
)
def credentials(environment: Environment, _: Context) -> Iterator[Problem]:
    """Look at every text of the file, keys included."""
    for path, _key, text in texts(environment):
        if looks_like_secret(text):
            yield Problem(path=path, message="has the shape of a credential", value=HIDDEN, fix=_REFERENCE)


@check(
    "SEC002",
    "What is called a secret is a reference",
    why="A password or token has no shape of its own; the name of its variable, key or flag tells. It would stand readable in the "
    "pod's specification, in templates and in version control.",
    link=_LINK,
    seen_in=_SEEN,
)
def literals(environment: Environment, _: Context) -> Iterator[Problem]:
    """Refuse literal values of variables, keys and flags that usually hold a credential."""
    for path, text in _named(environment):
        if text.strip().lower() not in _NOTHING and not _HARMLESS.fullmatch(text) and not looks_like_secret(text):
            yield Problem(path=path, message="holds a secret by its name, and the value is written out", value=HIDDEN, fix=_REFERENCE)


@check(
    "SEC003",
    "No secret is empty or None",
    why="An empty text, or the word None that a script printed, is sent as if it were the token. "
    "The hub answers 401 after the pod was scheduled.",
    link=_LINK,
    seen_in=_SEEN,
)
def empty(environment: Environment, _: Context) -> Iterator[Problem]:
    """Refuse values that stand for no value where a credential is meant."""
    for path, text in _named(environment):
        if text.strip().lower() in _NOTHING:
            yield Problem(
                path=path,
                message="is a secret by its name, and says nothing",
                value=text,
                fix="remove it, or refer to a Kubernetes Secret: {secret: <name>, key: <key in it>}",
            )


@check(
    "SEC004",
    "No URL carries a password",
    why="A URL with user and password is logged by everything that connects to it.",
    link=_LINK,
)
def urls(environment: Environment, _: Context) -> Iterator[Problem]:
    """Refuse URLs of the form scheme://user:password@host."""
    for path, _key, text in texts(environment):
        if _USER_INFO.search(text) and not looks_like_secret(text):
            yield Problem(
                path=path,
                message="is a URL with a password in it",
                value=HIDDEN,
                fix="take the password out, and give it by a reference to a Kubernetes Secret",
            )
