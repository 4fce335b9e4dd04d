"""Buckets of Google Cloud Storage (gs://), with application default credentials or at `STORAGE_EMULATOR_HOST`."""

import functools
import os
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import requests
from google.api_core import exceptions
from google.auth.credentials import AnonymousCredentials
from google.auth.exceptions import DefaultCredentialsError, GoogleAuthError, RefreshError
from google.cloud import storage
from google.cloud.storage.retry import DEFAULT_RETRY

from eeg2text_jax.base.errors import first_line
from eeg2text_jax.base.stores import buckets
from eeg2text_jax.base.stores.buckets import ANY, DIGEST, Advance, Entry, StoreError, seconds, translate_errors


def open_bucket(name: str) -> "GCSStore":
    place = f"gs://{name}"
    with translate_errors(place, _translate):
        if os.environ.get("STORAGE_EMULATOR_HOST") and "GOOGLE_APPLICATION_CREDENTIALS" not in os.environ:
            client = storage.Client(project="none", credentials=AnonymousCredentials())
        else:
            client = storage.Client()
        return GCSStore(name, client)


class GCSStore:
    """A bucket of Google Cloud Storage, see `buckets.Store`."""

    def __init__(self, bucket: str, client: Any):
        self._name, self._client = bucket, client
        self._bucket = client.bucket(bucket)
        self._translated = functools.partial(translate_errors, f"gs://{bucket}", _translate)
        retry = DEFAULT_RETRY.with_delay(initial=0.5, maximum=8.0).with_timeout(seconds() * buckets.ATTEMPTS)
        self._limits = {"timeout": (min(10.0, seconds()), seconds()), "retry": retry}

    def entries(self, prefix: str) -> list[Entry]:
        with self._translated():
            blobs = self._client.list_blobs(self._bucket, prefix=prefix, **self._limits)
            return [Entry(blob.name, int(blob.size), str(blob.generation)) for blob in blobs]

    def head(self, key: str) -> tuple[str, dict[str, str]] | None:
        with self._translated():
            blob = self._bucket.get_blob(key, **self._limits)
            return blob and (str(blob.generation), dict(blob.metadata or {}))

    def read(self, key: str) -> tuple[bytes, str] | None:
        with self._translated():
            blob = self._bucket.get_blob(key, **self._limits)
            if blob is None:
                return None
            tag = str(blob.generation)  # the download may reset `generation`
            try:
                return blob.download_as_bytes(**self._limits), tag
            except exceptions.NotFound:
                return None

    def download(self, key: str, path: Path, advance: Advance) -> str | None:
        with self._translated():
            blob = self._bucket.get_blob(key, **self._limits)
            if blob is None:
                raise StoreError(f"gs://{self._name}/{key}: was removed meanwhile; start again.")
            with path.open("wb") as file:  # the client compares checksums
                self._client.download_blob_to_file(blob, _Counting(file, advance), **self._limits)
            return (blob.metadata or {}).get(DIGEST)

    def upload(
        self, path: Path, key: str, digest: str, over: str | None = ANY, labels: Mapping[str, str] | None = None
    ) -> str | None:
        blob = self._bucket.blob(key)
        blob.metadata = {DIGEST: digest, **(labels or {})}
        return self._write(blob, over, blob.upload_from_filename, str(path), "application/octet-stream")

    def put(self, key: str, content: bytes, over: str | None) -> str | None:
        blob = self._bucket.blob(key)
        return self._write(blob, over, blob.upload_from_string, content)

    def _write(self, blob: Any, over: str | None, upload: Callable[..., None], *arguments: Any) -> str | None:
        """Call `upload` if the object has the tag `over`; return the new tag, or None."""
        with self._translated():
            try:
                upload(*arguments, **_condition(over), **self._limits)
            except exceptions.PreconditionFailed:
                return None
            return str(blob.generation)

    def delete(self, key: str, over: str = ANY) -> bool:
        with self._translated():
            try:
                self._bucket.blob(key).delete(**_condition(over), **self._limits)
            except exceptions.PreconditionFailed:
                return self.head(key) is None
            except exceptions.NotFound as error:
                if all(words in first_line(error).lower() for words in ("bucket", "does not exist")):
                    raise
            return True


def _condition(over: str | None) -> dict[str, int]:
    """Return the generation that an object must have, 0: none."""
    return {} if over == ANY else {"if_generation_match": int(over or 0)}


class _Counting:
    def __init__(self, file: Any, advance: Advance):
        self._file, self._advance = file, advance

    def write(self, data: bytes) -> int:
        self._advance(len(data))
        return self._file.write(data)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._file, name)


def _translate(place: str, error: Exception) -> StoreError | None:
    if retried := isinstance(error, exceptions.RetryError):
        error = error.cause or error
    if isinstance(error, DefaultCredentialsError):
        return StoreError.no_access(place, "there are none; `gcloud auth application-default login` gives some")
    if isinstance(error, exceptions.Forbidden | exceptions.Unauthorized | RefreshError):
        return StoreError.no_access(place, first_line(error)[:160])
    if isinstance(error, exceptions.NotFound):
        return StoreError.no_bucket(place)
    answerless = exceptions.GoogleAPIError | GoogleAuthError | requests.RequestException | ConnectionError
    if retried or isinstance(error, answerless):
        return StoreError.no_answer(place, first_line(error))
    return None
