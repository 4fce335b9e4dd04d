"""Buckets of S3, and of the stores that speak as it does, through boto3.

Credentials, region and endpoint are where every program of AWS finds them: the environment (`AWS_ENDPOINT_URL` among
it), `~/.aws`, or the machine's role.
"""

import functools
from pathlib import Path
from typing import Any

import boto3
from boto3.exceptions import S3UploadFailedError
from boto3.s3.transfer import TransferConfig
from botocore.config import Config
from botocore.exceptions import (
    BotoCoreError,
    ClientError,
    ConfigNotFound,
    CredentialRetrievalError,
    NoCredentialsError,
    PartialCredentialsError,
    ProfileNotFound,
)

from eeg2text_jax.errors import first_line
from eeg2text_jax.stores.store import (
    ATTEMPTS,
    DIGEST,
    Advance,
    Entry,
    StoreError,
    missing,
    refused,
    saying,
    seconds,
    silent,
)

_TRANSFER = TransferConfig(multipart_threshold=64 << 20, multipart_chunksize=32 << 20, max_concurrency=4)
_NOT_THERE = ("404", "NoSuchKey", "NotFound")
_HELD = ("PreconditionFailed", "ConditionalRequestConflict", "412", "409")
_UNCONDITIONAL = ("NotImplemented", "501")  # what stores say that cannot compare before they write


def open_bucket(name: str) -> "S3Store":
    place = f"s3://{name}"
    with saying(place, _translate):
        limits = Config(
            connect_timeout=min(10.0, seconds()),
            read_timeout=seconds(),
            retries={"total_max_attempts": ATTEMPTS, "mode": "standard"},
        )
        return S3Store(name, boto3.session.Session().client("s3", config=limits))


class S3Store:
    """A bucket; see `store.Store`. Clients of boto3 may be used by several threads at once."""

    def __init__(self, bucket: str, client: Any):
        self._bucket, self._client = bucket, client
        self._saying = functools.partial(saying, f"s3://{bucket}", _translate)

    def entries(self, prefix: str) -> list[Entry]:
        found = []
        with self._saying():
            pages = self._client.get_paginator("list_objects_v2").paginate(Bucket=self._bucket, Prefix=prefix)
            for page in pages:
                found += [Entry(item["Key"], item["Size"], item["ETag"]) for item in page.get("Contents", ())]
        return found

    def find(self, key: str) -> Entry | None:
        return next((entry for entry in self.entries(key) if entry.key == key), None)

    def read(self, key: str) -> tuple[bytes, str] | None:
        with self._saying():
            try:
                answer = self._client.get_object(Bucket=self._bucket, Key=key)
                return answer["Body"].read(), answer["ETag"]
            except ClientError as error:
                if _code(error) in _NOT_THERE:
                    return None
                raise

    def download(self, key: str, path: Path, advance: Advance) -> str | None:
        with self._saying():
            about = self._client.head_object(Bucket=self._bucket, Key=key)
            self._client.download_file(self._bucket, key, str(path), Callback=advance, Config=_TRANSFER)
        return about.get("Metadata", {}).get(DIGEST)

    def upload(self, path: Path, key: str, digest: str) -> str:
        with self._saying():
            about = {"Metadata": {DIGEST: digest}}
            self._client.upload_file(str(path), self._bucket, key, ExtraArgs=about, Config=_TRANSFER)
            return self._client.head_object(Bucket=self._bucket, Key=key)["ETag"]

    def put(self, key: str, content: bytes, over: str | None) -> str | None:
        condition = {"IfNoneMatch": "*"} if over is None else {"IfMatch": over}
        with self._saying():
            try:
                return self._put(key, content, condition)
            except ClientError as error:
                if _code(error) in _HELD or (over is not None and _code(error) in _NOT_THERE):
                    return None
                if _code(error) not in _UNCONDITIONAL:
                    raise
                there = self.read(key)
                return self._put(key, content, {}) if over == (there and there[1]) else None

    def _put(self, key: str, content: bytes, condition: dict[str, str]) -> str:
        return self._client.put_object(Bucket=self._bucket, Key=key, Body=content, **condition)["ETag"]

    def delete(self, key: str) -> None:
        with self._saying():
            self._client.delete_object(Bucket=self._bucket, Key=key)


def _code(error: ClientError) -> str:
    return str(error.response.get("Error", {}).get("Code", ""))


_REFUSALS = (
    "AccessDenied",
    "InvalidAccessKeyId",
    "SignatureDoesNotMatch",
    "ExpiredToken",
    "InvalidToken",
    "AuthorizationHeaderMalformed",
    "403",
    "401",
)
_NO_CREDENTIALS = (NoCredentialsError, PartialCredentialsError, CredentialRetrievalError, ProfileNotFound)


def _translate(place: str, error: Exception) -> StoreError | None:
    if isinstance(error, S3UploadFailedError) and isinstance(error.__context__, ClientError | BotoCoreError):
        error = error.__context__
    if isinstance(error, _NO_CREDENTIALS):
        return refused(place, f"{first_line(error)}; `aws configure` or AWS_PROFILE gives some")
    if isinstance(error, ClientError):
        if _code(error) == "NoSuchBucket":
            return missing(place)
        if _code(error) in _REFUSALS:
            return refused(place, _code(error))
        return silent(place, first_line(error))
    if isinstance(error, BotoCoreError | S3UploadFailedError | ConfigNotFound):
        return silent(place, first_line(error))
    return None
