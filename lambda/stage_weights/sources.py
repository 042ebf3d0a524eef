"""Where weights come from: the Hugging Face hub, or a folder of another bucket."""

import base64
import hashlib
import http.client
import json
import re
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Protocol

HUB = "https://huggingface.co"
_TIMEOUT_SECONDS = 60
_HUB = re.compile(r"hub:(?P<model>[A-Za-z0-9_.-]+/[A-Za-z0-9_.-]+)@(?P<revision>[0-9a-f]{40})")
_BUCKET = re.compile(r"s3://(?P<bucket>[a-z0-9][a-z0-9.-]{1,61}[a-z0-9])/(?P<prefix>.*)")
_NEXT = re.compile(r'<([^>]+)>;\s*rel="next"')
NETWORK = (OSError, http.client.HTTPException)
"""What reading raises when a connection ends too early; it is tried again from where it was."""


class Refused(Exception):  # noqa: N818
    """The source will not give what is asked for, however often it is asked."""


@dataclass(frozen=True)
class File:
    """A file of a source. ``identity`` changes with its content; ``digest`` is what its bytes must come to, where that is known."""

    path: str
    size: int
    identity: str
    digest: str = ""

    def hashes(self) -> "Hashes":
        """What adds up its bytes."""
        return Hashes(self)


class Hashes:
    """SHA-256 of a file, and the digest that its source states, which may be of another kind."""

    def __init__(self, file: File) -> None:
        self._kind, _, self._wanted = file.digest.partition(":")
        self._sha256 = hashlib.sha256()
        # Git's name of a file is a hash of its length and its bytes.
        self._git = hashlib.sha1(f"blob {file.size}\0".encode(), usedforsecurity=False) if self._kind == "git" else None

    def add(self, data: bytes) -> None:
        """Add the next bytes."""
        self._sha256.update(data)
        if self._git:
            self._git.update(data)

    @property
    def sha256(self) -> str:
        """SHA-256 so far, in hexadecimal digits."""
        return self._sha256.hexdigest()

    @property
    def right(self) -> bool:
        """Whether it is what the source states. True where it states nothing."""
        return not self._wanted or self._wanted == (self._git.hexdigest() if self._git else self.sha256)


class Source(Protocol):
    """Something that lists files and reads them from any place on."""

    name: str

    def files(self) -> list[File]:
        """All files. Raises ``Refused``."""

    def read(self, file: File, start: int, piece: int) -> Iterator[bytes]:
        """The bytes of a file from ``start`` on, in pieces. Raises ``NETWORK`` errors when the connection ends."""


class _ToTheSameHost(urllib.request.HTTPRedirectHandler):
    """Hands nothing of the request on to the servers that files lie on: their URLs are signed, and the token is the hub's."""

    def redirect_request(self, req: Any, fp: Any, code: Any, msg: Any, headers: Any, newurl: str) -> Any:
        made = super().redirect_request(req, fp, code, msg, headers, newurl)
        same = urllib.parse.urlsplit(newurl).netloc == urllib.parse.urlsplit(req.full_url).netloc
        if made is not None and same and req.has_header("Authorization"):
            made.add_unredirected_header("Authorization", req.get_header("Authorization"))
        return made


class Hub:
    """A repository of the hub at a commit."""

    def __init__(self, model: str, revision: str, *, token: str = "", hub: str = HUB) -> None:
        self.name = f"hub:{model}@{revision}"
        self._model, self._revision, self._hub = model, revision, hub
        self._token = token.strip()
        self._opener = urllib.request.build_opener(_ToTheSameHost)

    def files(self) -> list[File]:
        """The tree of the commit, page by page."""
        url: str | None = f"{self._hub}/api/models/{self._model}/tree/{self._revision}?recursive=true"
        found: list[File] = []
        while url:
            with self._open(url) as answer:
                found += [_hub_file(entry) for entry in json.load(answer) if entry.get("type") == "file"]
                following = _NEXT.search(answer.headers.get("Link") or "")
            url = urllib.parse.urljoin(self._hub, following[1]) if following else None
        return found

    def read(self, file: File, start: int, piece: int) -> Iterator[bytes]:
        """Download from a place on."""
        url = f"{self._hub}/{self._model}/resolve/{self._revision}/{urllib.parse.quote(file.path)}"
        with self._open(url, start) as answer:
            if start and answer.status != http.HTTPStatus.PARTIAL_CONTENT:
                raise Refused(f"{file.path}: the server does not go on from a place in the middle")
            while data := answer.read(piece):
                yield data

    def _open(self, url: str, start: int = 0) -> Any:
        asked = urllib.request.Request(url, headers={"User-Agent": "dpd-stage-model"})  # noqa: S310 - https, or a test's server
        if start:
            asked.add_header("Range", f"bytes={start}-")
        if self._token:
            asked.add_unredirected_header("Authorization", f"Bearer {self._token}")
        try:
            return self._opener.open(asked, timeout=_TIMEOUT_SECONDS)
        except urllib.error.HTTPError as error:
            if error.code in {401, 403}:
                known = "its owner has not accepted the model's licence" if self._token else "there is no token"
                raise Refused(f"the hub answers {error.code} for {self._model}: the model is gated or private, and {known}") from None
            if error.code == http.HTTPStatus.NOT_FOUND:
                raise Refused(f"the hub has no {self._model} at {self._revision}") from None
            # An error of the server, or too many requests: like a connection that ended.
            raise ConnectionError(f"the hub answers {error.code}") from None


def _hub_file(entry: dict[str, Any]) -> File:
    if large := entry.get("lfs"):
        return File(entry["path"], large["size"], large["oid"], f"sha256:{large['oid']}")
    return File(entry["path"], entry["size"], entry["oid"], f"git:{entry['oid']}")


class Bucket:
    """A folder of another bucket."""

    def __init__(self, client: Any, bucket: str, prefix: str) -> None:
        self._client, self._bucket = client, bucket
        self._prefix = f"{prefix.strip('/')}/" if prefix.strip("/") else ""
        self.name = f"s3://{bucket}/{self._prefix}"

    def files(self) -> list[File]:
        """All objects below the prefix, with their SHA-256 where S3 keeps it of the whole object."""
        listed = [
            one
            for page in self._client.get_paginator("list_objects_v2").paginate(Bucket=self._bucket, Prefix=self._prefix)
            for one in page.get("Contents", ())
            if not one["Key"].endswith("/")
        ]
        return [File(one["Key"].removeprefix(self._prefix), one["Size"], one["ETag"], self._digest(one["Key"])) for one in listed]

    def _digest(self, key: str) -> str:
        head = self._client.head_object(Bucket=self._bucket, Key=key, ChecksumMode="ENABLED")
        stated = head.get("ChecksumSHA256", "")
        # That of an upload in parts is a hash of hashes, and says how many.
        whole = stated and "-" not in stated and head.get("ChecksumType", "FULL_OBJECT") == "FULL_OBJECT"
        return f"sha256:{base64.b64decode(stated).hex()}" if whole else ""

    def read(self, file: File, start: int, piece: int) -> Iterator[bytes]:
        """Read from a place on, of the very object that was listed."""
        given = {"Range": f"bytes={start}-"} if start else {}
        answer = self._client.get_object(Bucket=self._bucket, Key=self._prefix + file.path, IfMatch=file.identity, **given)
        yield from answer["Body"].iter_chunks(piece)


def source_of(text: str, client: Any, *, token: str = "", hub: str = HUB) -> Source:
    """The source that a text names: ``hub:<owner>/<name>@<commit>`` or ``s3://<bucket>/<prefix>``. Raises ``Refused``."""
    if match := _HUB.fullmatch(text):
        return Hub(match["model"], match["revision"], token=token, hub=hub)
    if match := _BUCKET.fullmatch(text):
        return Bucket(client, match["bucket"], match["prefix"])
    raise Refused(f"{text[:200]!r} is neither hub:<owner>/<name>@<commit> nor s3://<bucket>/<prefix>")
