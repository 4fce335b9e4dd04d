"""Servers of buckets on the loopback: S3 as moto speaks it, and an emulator of Google Cloud Storage."""

import contextlib
import logging
import urllib.request
from collections.abc import Iterator
from typing import Any

BUCKET = "recordings"


class Server:
    """A server with one bucket; `environment`: variables by which clients find it, with credentials."""

    def __init__(self, scheme: str, environment: dict[str, str], bucket: str):
        self.scheme, self.environment, self.bucket = scheme, environment, bucket

    def address(self, key: str) -> str:
        return f"{self.scheme}://{self.bucket}/{key}"


@contextlib.contextmanager
def s3_server(bucket: str = BUCKET) -> Iterator[Server]:
    from moto.server import ThreadedMotoServer

    logging.getLogger("werkzeug").setLevel(logging.ERROR)
    server = ThreadedMotoServer(ip_address="127.0.0.1", port=0)
    server.start()
    try:
        host, port = server.get_host_and_port()
        environment = {
            "AWS_ENDPOINT_URL": f"http://{host}:{port}",
            "AWS_ACCESS_KEY_ID": "someone",
            "AWS_SECRET_ACCESS_KEY": "secret",
            "AWS_DEFAULT_REGION": "us-east-1",
        }
        s3_client(environment).create_bucket(Bucket=bucket)
        yield Server("s3", environment, bucket)
        request = urllib.request.Request(f"http://{host}:{port}/moto-api/reset", method="POST")
        urllib.request.urlopen(request).close()  # else the next server of this process holds the same buckets
    finally:
        server.stop()


def s3_client(environment: dict[str, str]) -> Any:
    import boto3

    return boto3.session.Session().client(
        "s3",
        endpoint_url=environment["AWS_ENDPOINT_URL"],
        aws_access_key_id=environment["AWS_ACCESS_KEY_ID"],
        aws_secret_access_key=environment["AWS_SECRET_ACCESS_KEY"],
        region_name=environment["AWS_DEFAULT_REGION"],
    )


@contextlib.contextmanager
def gcs_server(bucket: str = BUCKET) -> Iterator[Server]:
    from gcp_storage_emulator.server import create_server
    from google.auth.credentials import AnonymousCredentials
    from google.cloud import storage

    logging.getLogger("gcp_storage_emulator").setLevel(logging.ERROR)
    server = create_server("127.0.0.1", 0, in_memory=True)
    _compare_first(server._storage)
    server.start()
    try:
        host, port = server._api._httpd.socket.getsockname()[:2]
        place = f"http://{host}:{port}"
        anyone, options = AnonymousCredentials(), {"api_endpoint": place}
        client = storage.Client(project="none", credentials=anyone, client_options=options)
        client.create_bucket(bucket)
        yield Server("gs", {"STORAGE_EMULATOR_HOST": place}, bucket)
    finally:
        server.stop()


_REQUEST: list[Any] = []  # the one that an emulator of this process serves now


class _Failed(Exception):
    """The object is not of the generation that the request names."""


def _compare_first(storage: Any) -> None:
    """Makes the emulator heed `ifGenerationMatch`, which it passes over. It serves one request at a time."""
    from gcp_storage_emulator import server as emulator
    from gcp_storage_emulator.exceptions import NotFound

    class Noted(emulator.Request):
        def __init__(self, *arguments: Any):
            super().__init__(*arguments)
            _REQUEST[:] = [self]

    class Comparing(emulator.Router):
        def handle(self, method: str) -> None:
            try:
                super().handle(method)
            except _Failed:
                self._request_handler.send_response(412)
                self._request_handler.send_header("Content-Length", "0")
                self._request_handler.end_headers()

    def compared(change: Any) -> Any:
        def changed(bucket: str, name: str, *rest: Any, **named: Any) -> Any:
            for wanted in _REQUEST[0].query.get("ifGenerationMatch", ()):
                try:
                    there = storage.get_file_obj(bucket, name)["generation"]
                except NotFound:
                    there = "0"
                if there != wanted:
                    raise _Failed
            return change(bucket, name, *rest, **named)

        return changed

    if emulator.Request.__name__ != "Noted":
        emulator.Request, emulator.Router = Noted, Comparing
    storage.create_file, storage.delete_file = compared(storage.create_file), compared(storage.delete_file)


SERVERS = {"s3": s3_server, "gs": gcs_server}
