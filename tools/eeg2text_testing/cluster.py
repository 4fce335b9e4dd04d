"""Processes of this machine that stand for the hosts of a cluster."""

import socket


def free_port() -> int:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        return free.getsockname()[1]


def place_in_cluster(number: int, count: int, port: int) -> dict[str, str]:
    """The environment of one of `count` hosts, of which host 0 listens at `port`."""
    place = {"COORDINATOR": f"127.0.0.1:{port}", "PROCESSES": str(count), "PROCESS": str(number)}
    return {f"EEG2TEXT_{name}": value for name, value in place.items()}
