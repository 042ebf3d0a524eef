"""The copy: several files at once, each streamed in parts, hashed on the way, and only ever visible whole and right."""

import base64
import contextlib
import hashlib
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor, as_completed
from typing import Any

from botocore.exceptions import BotoCoreError

from stage_weights.choice import INDEX, chosen, has_weights, shards, tensor_bytes
from stage_weights.progress import Progress
from stage_weights.record import Record
from stage_weights.sources import NETWORK, File, Refused, Source

PARALLEL = 6
"""Files at once. Each holds one part in memory."""
PART_BYTES = 64 * 2**20
_MOST_PARTS = 10_000
_PIECE = 2**20
_TRIES = 8
_MOST_INDEX_BYTES = 100_000_000


class Broken(Exception):  # noqa: N818
    """It did not work this time; the next may go on."""


class Copy:
    """One copy of a source into a folder of a bucket."""

    def __init__(
        self, client: Any, bucket: str, prefix: str, source: Source, progress: Progress, *, part_bytes: int = PART_BYTES, pause: float = 1.0
    ) -> None:
        self._client, self._bucket, self._prefix = client, bucket, f"{prefix.strip('/')}/"
        self._source, self._progress, self._part_bytes, self._pause = source, progress, part_bytes, pause

    def run(self) -> None:
        """Copy what is not there yet, and check the whole. Raises ``Refused`` and ``Broken``."""
        files, index = self._wanted()
        record = Record(self._client, self._bucket, self._prefix, self._source.name)
        record.keep({file.path for file in files})
        there = self._there()
        missing = [file for file in files if not record.has(file.path, file.identity, there.get(file.path))]
        total = sum(file.size for file in files)
        self._progress.say(f"{self._source.name} to s3://{self._bucket}/{self._prefix}: {len(files)} files, {len(missing)} to copy")
        self._progress.begin(total, total - sum(file.size for file in missing))
        with ThreadPoolExecutor(PARALLEL) as pool:
            # The largest first: at the end no thread waits for one that began late.
            running = [pool.submit(self._one, file, record) for file in sorted(missing, key=lambda file: -file.size)]
            try:
                for done in as_completed(running):
                    done.result()
            except BaseException:
                pool.shutdown(wait=True, cancel_futures=True)
                raise
        self._verify(files, index)
        record.end()
        self._progress.say(f"done: {len(files)} files, {total:,} bytes, every one with its SHA-256 in the record")

    def _wanted(self) -> tuple[list[File], bytes]:
        """The files to copy, and the index of the weights, empty where there is none."""
        all_files = {file.path: file for file in self._patiently(self._source.files)}
        index = all_files.get(INDEX)
        content = self._small(index) if index and index.size <= _MOST_INDEX_BYTES else b""
        try:
            named = shards(content) if content else None
        except ValueError as error:
            raise Refused(f"{INDEX} cannot be read: {error}") from None
        paths = chosen(all_files, named)
        if lost := sorted((named or frozenset()) - all_files.keys()):
            raise Refused(f"{INDEX} names {len(lost)} files that the source does not have, such as {lost[0][:200]}")
        if not has_weights(paths):
            raise Refused(f"{self._source.name} has no safetensors files")
        return [all_files[path] for path in paths], content

    def _patiently(self, ask: Any) -> Any:
        for tried in range(_TRIES):
            try:
                return ask()
            except NETWORK as error:
                problem: Exception = error
                time.sleep(self._pause * 2**tried)
        raise Broken(f"{self._source.name} does not answer: {problem}")

    def _small(self, file: File) -> bytes:
        hashes = file.hashes()
        content = b"".join(self._bytes(file, hashes))
        if not hashes.right:
            raise Broken(f"{file.path} is not what the source states")
        return content

    def _there(self) -> dict[str, tuple[int, str]]:
        """Size and ETag of what lies in the folder."""
        pages = self._client.get_paginator("list_objects_v2").paginate(Bucket=self._bucket, Prefix=self._prefix)
        return {one["Key"].removeprefix(self._prefix): (one["Size"], one["ETag"]) for page in pages for one in page.get("Contents", ())}

    def _one(self, file: File, record: Record) -> None:
        """Copy one file; once more when its bytes were not right."""
        for _again in range(2):
            hashes = file.hashes()
            etag = self._upload(file, hashes)
            if etag:
                record.add(file.path, identity=file.identity, size=file.size, etag=etag, sha256=hashes.sha256)
                return
            self._progress.add(-file.size)
            self._progress.say(f"{file.path} is not what the source states; once more")
        raise Broken(f"{file.path} is not what the source states, twice")

    def _upload(self, file: File, hashes: Any) -> str:
        """Stream a file into parts of an upload, and end it only when the bytes are right. Returns the ETag, empty when they are not."""
        target = {"Bucket": self._bucket, "Key": self._prefix + file.path}
        part_bytes = max(self._part_bytes, -(-file.size // _MOST_PARTS))
        parts = _parts(self._bytes(file, hashes), part_bytes)
        if file.size <= part_bytes:
            body = b"".join(parts)
            if not hashes.right:
                return ""
            return str(self._client.put_object(**target, Body=body, ChecksumSHA256=_checksum(body))["ETag"])
        upload = {**target, "UploadId": self._client.create_multipart_upload(**target, ChecksumAlgorithm="SHA256")["UploadId"]}
        try:
            sent = []
            for number, body in enumerate(parts, start=1):
                checksum = _checksum(body)
                answer = self._client.upload_part(**upload, PartNumber=number, Body=body, ChecksumSHA256=checksum)
                sent.append({"PartNumber": number, "ETag": answer["ETag"], "ChecksumSHA256": checksum})
            if hashes.right:
                return str(self._client.complete_multipart_upload(**upload, MultipartUpload={"Parts": sent})["ETag"])
        except BaseException:
            self._abort(upload)
            raise
        self._abort(upload)
        return ""

    def _abort(self, upload: dict[str, Any]) -> None:
        # The bucket's own rule removes what stays behind.
        with contextlib.suppress(Exception):
            self._client.abort_multipart_upload(**upload)

    def _bytes(self, file: File, hashes: Any) -> Iterator[bytes]:
        """All bytes of a file; a connection that ends is opened again where it was."""
        place = tried = 0
        while place < file.size:
            try:
                for data in self._source.read(file, place, _PIECE):
                    if place + len(data) > file.size:
                        raise Broken(f"{file.path} has more than the {file.size:,} bytes that the source states")
                    place, tried = place + len(data), 0
                    hashes.add(data)
                    self._progress.add(len(data))
                    yield data
                if place < file.size:
                    raise ConnectionError(f"it ended after {place:,} of {file.size:,} bytes")
            except (*NETWORK, BotoCoreError) as error:
                tried += 1
                if tried == _TRIES:
                    raise Broken(f"{file.path} cannot be read: {error}") from None
                time.sleep(self._pause * 2**tried)

    def _verify(self, files: list[File], index: bytes) -> None:
        """Look at the folder once more: everything is there, in its size, and as large as the index says."""
        there = self._there()
        for file in files:
            if there.get(file.path, (-1, ""))[0] != file.size:
                raise Broken(f"{file.path} is not there as it was copied; somebody else writes into the folder")
        weights = sum(file.size for file in files if file.path.endswith(".safetensors"))
        if index and weights < tensor_bytes(index):
            raise Refused(f"the weights have {weights:,} bytes, and the index speaks of {tensor_bytes(index):,}")


def _parts(data: Iterator[bytes], part_bytes: int) -> Iterator[bytes]:
    """The same bytes in pieces of one size, the last one smaller."""
    held = bytearray()
    for piece in data:
        held += piece
        while len(held) >= part_bytes:
            yield bytes(held[:part_bytes])
            del held[:part_bytes]
    if held:
        yield bytes(held)


def _checksum(body: bytes) -> str:
    return base64.b64encode(hashlib.sha256(body).digest()).decode()
