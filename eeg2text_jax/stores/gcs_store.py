"""Buckets of Google Cloud Storage, through its own client.

Credentials are where every program of Google finds them: `GOOGLE_APPLICATION_CREDENTIALS`, what `gcloud auth
application-default login` left, or the machine's service account. `STORAGE_EMULATOR_HOST` names another server.
"""

import functools
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import requests
from google.api_core import exceptions
from google.api_core.retry import Retry, if_exception_type
from google.auth.credentials import AnonymousCredentials
from google.auth.exceptions import DefaultCredentialsError, GoogleAuthError, RefreshError, TransportError
from google.cloud import storage

from eeg2text_jax.errors import first_line
from eeg2text_jax.stores.store import (
    ANY,
    ATTEMPTS,
    DIGEST,
    NONE,
    Advance,
    Entry,
    StoreError,
    missing,
    refused,
    saying,
    seconds,
    silent,
)

_AGAIN = (
    exceptions.TooManyRequests,
    exceptions.ServerError,
    requests.ConnectionError,
    requests.Timeout,
    requests.exceptions.ChunkedEncodingError,
    ConnectionError,
    TransportError,
)


def open_bucket(name: str) -> "GCSStore":
    place = f"gs://{name}"
    with saying(place, _translate):
        if os.environ.get("STORAGE_EMULATOR_HOST") and "GOOGLE_APPLICATION_CREDENTIALS" not in os.environ:
            client = storage.Client(project="none", credentials=AnonymousCredentials())
        else:
            client = storage.Client()
        return GCSStore(name, client)


class GCSStore:
    """A bucket; see `store.Store`."""

    def __init__(self, bucket: str, client: Any):
        self._name, self._client = bucket, client
        self._bucket = client.bucket(bucket)
        self._saying = functools.partial(saying, f"gs://{bucket}", _translate)
        again = Retry(if_exception_type(*_AGAIN), initial=0.5, maximum=8.0, timeout=seconds() * ATTEMPTS)
        self._limits = {"timeout": (min(10.0, seconds()), seconds()), "retry": again}

    def entries(self, prefix: str) -> list[Entry]:
        with self._saying():
            found = self._client.list_blobs(self._bucket, prefix=prefix, **self._limits)
            return [Entry(blob.name, int(blob.size), str(blob.generation)) for blob in found]

    def head(self, key: str) -> tuple[str, dict[str, str]] | None:
        with self._saying():
            blob = self._bucket.get_blob(key, **self._limits)
            return blob and (str(blob.generation), dict(blob.metadata or {}))

    def read(self, key: str) -> tuple[bytes, str] | None:
        with self._saying():
            blob = self._bucket.get_blob(key, **self._limits)
            if blob is None:
                return None
            tag = str(blob.generation)  # downloading may forget it
            try:
                return blob.download_as_bytes(**self._limits), tag
            except exceptions.NotFound:
                return None

    def download(self, key: str, path: Path, advance: Advance) -> str | None:
        with self._saying():
            blob = self._bucket.get_blob(key, **self._limits)
            if blob is None:
                raise StoreError(f"gs://{self._name}/{key}: was removed meanwhile; start again.")
            with path.open("wb") as file:  # checksums are compared on the way
                self._client.download_blob_to_file(blob, _Counting(file, advance), **self._limits)
            return (blob.metadata or {}).get(DIGEST)

    def upload(
        self, path: Path, key: str, digest: str, over: str | None = ANY, labels: Mapping[str, str] = NONE
    ) -> str | None:
        with self._saying():
            blob = self._bucket.blob(key)
            blob.metadata = {DIGEST: digest, **labels}
            try:
                blob.upload_from_filename(
                    str(path), content_type="application/octet-stream", **_condition(over), **self._limits
                )
            except exceptions.PreconditionFailed:
                return None
            return str(blob.generation)

    def put(self, key: str, content: bytes, over: str | None) -> str | None:
        with self._saying():
            blob = self._bucket.blob(key)
            try:
                blob.upload_from_string(content, **_condition(over), **self._limits)
            except exceptions.PreconditionFailed:
                return None
            return str(blob.generation)

    def delete(self, key: str, over: str = ANY) -> bool:
        with self._saying():
            try:
                self._bucket.blob(key).delete(**_condition(over), **self._limits)
            except exceptions.PreconditionFailed:
                return self.head(key) is None
            except exceptions.NotFound as error:
                if "bucket" in first_line(error).lower() and "does not exist" in first_line(error).lower():
                    raise
            return True


def _condition(over: str | None) -> dict[str, int]:
    """What the store compares before it writes: the object's generation, 0 where there is to be none."""
    return {} if over == ANY else {"if_generation_match": int(over or 0)}


class _Counting:
    """A file that says how much is written to it."""

    def __init__(self, file: Any, advance: Advance):
        self._file, self._advance = file, advance

    def write(self, data: bytes) -> int:
        self._advance(len(data))
        return self._file.write(data)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._file, name)


def _translate(place: str, error: Exception) -> StoreError | None:
    if isinstance(error, exceptions.RetryError) and error.cause is not None:
        error = error.cause
    if isinstance(error, DefaultCredentialsError):
        return refused(place, "there are none; `gcloud auth application-default login` gives some")
    if isinstance(error, exceptions.Forbidden | exceptions.Unauthorized | RefreshError):
        return refused(place, first_line(error)[:160])
    if isinstance(error, exceptions.NotFound):
        return missing(place)
    if isinstance(error, exceptions.GoogleAPIError | GoogleAuthError | requests.RequestException | ConnectionError):
        return silent(place, first_line(error))
    return None
