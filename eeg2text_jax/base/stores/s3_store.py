"""Buckets of S3 and compatible servers (s3://), with boto3's credentials, region and endpoint."""

import contextlib
import functools
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import boto3
from boto3.s3.transfer import TransferConfig
from botocore import exceptions
from botocore.config import Config
from botocore.exceptions import BotoCoreError, ClientError

from eeg2text_jax.base.errors import first_line
from eeg2text_jax.base.stores import buckets
from eeg2text_jax.base.stores.buckets import ANY, ATTEMPTS, DIGEST, Advance, Entry, StoreError, seconds

PART = 32 << 20  # bytes; files larger than two parts are uploaded in parts
_PARTS_AT_ONCE = 4
_TRANSFER = TransferConfig(multipart_threshold=2 * PART, multipart_chunksize=PART, max_concurrency=_PARTS_AT_ONCE)
_NOT_THERE = ("404", "NoSuchKey", "NotFound")
_CONFLICT = ("PreconditionFailed", "ConditionalRequestConflict", "412", "409")
_UNCONDITIONAL = ("NotImplemented", "501")  # errors of servers without conditional requests


def open_bucket(name: str) -> "S3Store":
    place = f"s3://{name}"
    with buckets.translate_errors(place, _translate):
        retries = {"total_max_attempts": ATTEMPTS, "mode": "standard"}
        limits = Config(connect_timeout=min(10.0, seconds()), read_timeout=seconds(), retries=retries)
        return S3Store(name, boto3.session.Session().client("s3", config=limits))


class S3Store:
    """A bucket of S3, see `buckets.Store`; boto3's clients are thread-safe."""

    def __init__(self, bucket: str, client: Any):
        self._bucket, self._client = bucket, client
        self._translated = functools.partial(buckets.translate_errors, f"s3://{bucket}", _translate)

    def entries(self, prefix: str) -> list[Entry]:
        with self._translated():
            pages = self._client.get_paginator("list_objects_v2").paginate(Bucket=self._bucket, Prefix=prefix)
            found = (item for page in pages for item in page.get("Contents", ()))
            return [Entry(item["Key"], item["Size"], item["ETag"]) for item in found]

    def head(self, key: str) -> tuple[str, dict[str, str]] | None:
        with self._translated(), _absent_is_none():
            answer = self._client.head_object(Bucket=self._bucket, Key=key)
            return answer["ETag"], dict(answer.get("Metadata", {}))
        return None

    def read(self, key: str) -> tuple[bytes, str] | None:
        with self._translated(), _absent_is_none():
            answer = self._client.get_object(Bucket=self._bucket, Key=key)
            return answer["Body"].read(), answer["ETag"]
        return None

    def download(self, key: str, path: Path, advance: Advance) -> str | None:
        with self._translated():
            about = self._client.head_object(Bucket=self._bucket, Key=key)
            self._client.download_file(self._bucket, key, str(path), Callback=advance, Config=_TRANSFER)
        return about.get("Metadata", {}).get(DIGEST)

    def upload(
        self, path: Path, key: str, digest: str, over: str | None = ANY, labels: Mapping[str, str] | None = None
    ) -> str | None:
        about = {"Metadata": {DIGEST: digest, **(labels or {})}}

        def send(**condition: str) -> str:
            if path.stat().st_size > 2 * PART:
                return self._put_parts(path, key, about, condition)
            with path.open("rb") as file:
                return self._put(key, file, {**about, **condition})

        return self._compared(key, over, send)

    def put(self, key: str, content: bytes, over: str | None) -> str | None:
        return self._compared(key, over, lambda **condition: self._put(key, content, condition))

    def delete(self, key: str, over: str = ANY) -> bool:
        remove = functools.partial(self._client.delete_object, Bucket=self._bucket, Key=key)
        return self._compared(key, over, remove) is not None or self.head(key) is None

    def _compared(self, key: str, over: str | None, change: Callable[..., Any]) -> Any:
        """Return `change(**condition)` if the object has the tag `over`, else None.

        A server without conditional requests is asked for the tag before.
        """
        condition = {} if over == ANY else {"IfMatch": over} if over else {"IfNoneMatch": "*"}
        with self._translated():
            try:
                return change(**condition)
            except ClientError as error:
                if condition and (_code(error) in _CONFLICT or (over and _code(error) in _NOT_THERE)):
                    return None
                if not condition or _code(error) not in _UNCONDITIONAL:
                    raise
                there = self.head(key)
                return change() if over == (there and there[0]) else None

    def _put(self, key: str, content: Any, arguments: Mapping[str, Any]) -> str:
        return self._client.put_object(Bucket=self._bucket, Key=key, Body=content, **arguments)["ETag"]

    def _put_parts(self, path: Path, key: str, about: Mapping[str, Any], condition: Mapping[str, str]) -> str:
        place: dict[str, Any] = {"Bucket": self._bucket, "Key": key}
        wants_sums = self._client.meta.config.request_checksum_calculation == "when_supported"  # boto3's default
        sums = {"ChecksumAlgorithm": "CRC32"} if wants_sums else {}
        place["UploadId"] = self._client.create_multipart_upload(**place, **about, **sums)["UploadId"]

        def send(number: int) -> dict[str, Any]:
            with path.open("rb") as file:
                file.seek((number - 1) * PART)
                answer = self._client.upload_part(**place, **sums, PartNumber=number, Body=file.read(PART))
            sent = {name: answer[name] for name in ("ETag", "ChecksumCRC32") if name in answer}
            return {"PartNumber": number, **sent}

        try:
            with ThreadPoolExecutor(_PARTS_AT_ONCE) as workers:
                parts = list(workers.map(send, range(1, -(-path.stat().st_size // PART) + 1)))
            done = self._client.complete_multipart_upload(**place, MultipartUpload={"Parts": parts}, **condition)
            return done["ETag"]
        except BaseException:
            with contextlib.suppress(ClientError, BotoCoreError):
                self._client.abort_multipart_upload(**place)
            raise


@contextlib.contextmanager
def _absent_is_none() -> Iterator[None]:
    try:
        yield
    except ClientError as error:
        if _code(error) not in _NOT_THERE:
            raise


def _code(error: ClientError) -> str:
    return str(error.response.get("Error", {}).get("Code", ""))


_REFUSALS = (
    *("AccessDenied", "InvalidAccessKeyId", "SignatureDoesNotMatch", "ExpiredToken", "InvalidToken"),
    *("AuthorizationHeaderMalformed", "403", "401"),
)
_NO_CREDENTIALS = (
    *(exceptions.NoCredentialsError, exceptions.PartialCredentialsError),
    *(exceptions.CredentialRetrievalError, exceptions.ProfileNotFound),
)


def _translate(place: str, error: Exception) -> StoreError | None:
    code = _code(error) if isinstance(error, ClientError) else ""
    if isinstance(error, _NO_CREDENTIALS):
        return StoreError.no_access(place, f"{first_line(error)}; `aws configure` or AWS_PROFILE gives some")
    if code == "NoSuchBucket":
        return StoreError.no_bucket(place)
    if code in _REFUSALS:
        return StoreError.no_access(place, code)
    return StoreError.no_answer(place, first_line(error)) if isinstance(error, BotoCoreError | ClientError) else None
