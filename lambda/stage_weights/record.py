"""The record of a copy: what is there, with the SHA-256 of every file. It is how a copy goes on, and how it is believed."""

import json
import threading
from typing import Any

_VERSION = 1
_FOLDER = "dpd-staging"


def record_key(prefix: str) -> str:
    """Key of the record of a folder. ``dpd preflight`` looks there too."""
    return f"{_FOLDER}/{prefix.strip('/')}/manifest.json"


class Record:
    """The record in its bucket, written whole after every file."""

    def __init__(self, client: Any, bucket: str, prefix: str, source: str) -> None:
        self._client, self._bucket, self._key, self._source = client, bucket, record_key(prefix), source
        self._lock = threading.Lock()
        self._files: dict[str, dict[str, Any]] = self._read()

    def _read(self) -> dict[str, dict[str, Any]]:
        """What an earlier copy left; nothing when it left nothing that can be read, or began at another source."""
        try:
            known = json.loads(self._client.get_object(Bucket=self._bucket, Key=self._key)["Body"].read())
            files = known["files"] if (known["version"], known["source"]) == (_VERSION, self._source) else {}
        except self._client.exceptions.NoSuchKey:
            return {}
        except (ValueError, KeyError, TypeError):
            return {}
        return {path: entry for path, entry in files.items() if isinstance(entry, dict)} if isinstance(files, dict) else {}

    def has(self, path: str, identity: str, there: tuple[int, str] | None) -> bool:
        """Whether a file was copied and checked, and is still the object that it was (size and ETag)."""
        entry = self._files.get(path, {})
        return there is not None and (entry.get("from"), entry.get("size"), entry.get("etag")) == (identity, *there)

    def add(self, path: str, *, identity: str, size: int, etag: str, sha256: str) -> None:
        """A file is there."""
        with self._lock:
            self._files[path] = {"size": size, "sha256": sha256, "etag": etag, "from": identity}
            self._write(complete=False)

    def keep(self, paths: set[str]) -> None:
        """Forget files that are not of this copy, and say that it is under way."""
        with self._lock:
            self._files = {path: entry for path, entry in self._files.items() if path in paths}
            self._write(complete=False)

    def end(self) -> None:
        """All is there."""
        with self._lock:
            self._write(complete=True)

    def _write(self, *, complete: bool) -> None:
        content = {"version": _VERSION, "source": self._source, "complete": complete, "files": dict(sorted(self._files.items()))}
        body = json.dumps(content, indent=1).encode()
        self._client.put_object(Bucket=self._bucket, Key=self._key, Body=body, ContentType="application/json")
