"""A run on several hosts, which are processes on the loopback: random hosts are killed or stopped, and all start again.

    python tools/simulate.py DIR [--hosts 2] [--mesh 2,2] [--store s3|gs|folder] [--kills 2] [--stops 1]

The demonstration runs in one process, then undisturbed on the first number of hosts. Then it runs in an empty workdir,
and at a random moment a random host is killed (SIGKILL) or stopped (SIGSTOP) with all its processes. All others must
end in 20 seconds, with status 75 and one sentence. All hosts start again: with `--hosts 4,2,3` on the next number of
hosts each time (the mesh needs a number of devices that each of them divides, as 2,6 does). Each end must have the
bytes of one process. A run that came to its end before a fault is followed by one in another empty workdir, in which
the fault strikes. Exit status 1 where something failed.
"""

import argparse
import contextlib
import itertools
import os
import random
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

from eeg2text_testing.bucket_servers import SERVERS
from eeg2text_testing.cluster import free_port, place_in_cluster
from eeg2text_testing.forked_runs import arguments, differing, prepare, what_counts

NOTICED = 20.0  # seconds
STARTUP = 10  # seconds in which all hosts must have come; a host that dies before it has come is noticed then
RESTART = 75  # status
LOST_EACH_OTHER = "the hosts lost each other"
SHARE = 0.8  # of the time of an undisturbed run


class Host:
    """One process of a run, in a process group of its own, with a cache of its own."""

    def __init__(self, out: Path, number: int, count: int, port: int, command: list[str], devices: int):
        environment = {
            **os.environ,
            "JAX_PLATFORMS": "cpu",
            "XLA_FLAGS": f"--xla_force_host_platform_device_count={devices}",
            "JAX_COMPILATION_CACHE_DIR": str(out / "compiled"),
            "JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS": "0",
            # Of several hosts JAX keeps the programs of the first alone, which would then wait for the others longer
            # than the 30 seconds that Gloo allows.
            "JAX_ENABLE_COMPILATION_CACHE": str(int(count == 1)),
            "JAX_DISABLE_MOST_OPTIMIZATIONS": "1",  # compiles sooner
            "EEG2TEXT_BUCKET_CACHE": str(out / f"cache_{number}"),
            **place_in_cluster(number, count, port),
        }
        self.log = out / f"log_{number}"
        with self.log.open("w") as log:
            options = {"stdout": log, "stderr": subprocess.STDOUT, "start_new_session": True}
            command = [sys.executable, "-m", "eeg2text_jax", *command]
            self.process = subprocess.Popen(command, env=environment, **options)

    def strike(self, fault: signal.Signals) -> None:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self.process.pid, fault)


def start(out: Path, workdir: str, count: int, mesh: tuple[int, int]) -> list[Host]:
    changes = {"train__steps": 8, "train__eval_every": 4, "train__save_every": 2, "batch__size": 12}
    changes |= {"decode__batch_size": 12}  # rows that 2, 3, 4 and 6 devices divide
    flags = arguments(**changes, parallel__mesh=mesh, parallel__hosts="env", parallel__heartbeat=12,
                        parallel__startup=STARTUP)  # fmt: skip
    command = ["run", *flags, f"--workdir={workdir}"]
    port = free_port()
    return [Host(out, n, count, port, command, mesh[0] * mesh[1] // count) for n in range(count)]


def disturb(hosts: list[Host], fault: signal.Signals, seconds: float, rng: random.Random) -> tuple[str, float | None]:
    """Strike one host within `seconds` of the start; return what happened, and when the last other host ended.

    This is in seconds after the fault; None: the run was over; 0: the hosts had lost each other without a fault.
    """
    time.sleep(after := rng.uniform(0.0, seconds))
    victim = rng.randrange(len(hosts))
    if any(host.process.poll() for host in hosts):  # on a slow machine, hosts may lose each other without a fault
        return given_up(hosts), 0.0
    late = any(host.process.poll() is not None for host in hosts)
    hosts[victim].strike(fault)
    begun, ends = time.monotonic(), []
    for number, host in enumerate(hosts):
        if number != victim:
            with contextlib.suppress(subprocess.TimeoutExpired):
                host.process.wait(max(0.0, begun + 3 * NOTICED - time.monotonic()))
            ends.append((number, host.process.poll(), time.monotonic() - begun))
    for host in hosts:
        host.strike(signal.SIGKILL)
        host.process.wait()
    took = max((seconds for *_, seconds in ends), default=0.0)
    if late or all(status == 0 for _, status, _ in ends):
        return f"{fault.name} of host {victim}: too late", None
    said = [f"FAILED: host {n}: status {status} after {seconds:.0f} s\n{hosts[n].log.read_text()[-1500:]}"
            for n, status, seconds in ends if not sentence(status, hosts[n]) or seconds > NOTICED]  # fmt: skip
    early = any("not all hosts came" in hosts[n].log.read_text() for n, *_ in ends)
    when = f"{after:.0f} s after the start{', before all hosts had come' if early else ''}"
    return "\n".join(said) or f"{fault.name} of host {victim}, {when}: noticed in {took:.1f} s", took


def given_up(hosts: list[Host]) -> str:
    """What hosts said that lost each other though none was struck."""
    for host in hosts:
        host.process.wait()
    said = [host.log.read_text()[-1500:] for host in hosts if not sentence(host.process.returncode, host)]
    return "\n".join([f"{'FAILED: ' if said else ''}{LOST_EACH_OTHER} without a fault", *said])


def complete(begin: Callable[[], list[Host]]) -> float:
    """Start all hosts, again where they lost each other, as a launcher does; return the seconds of the last start."""
    while True:
        begun, hosts = time.monotonic(), begin()
        if not any(host.process.wait() for host in hosts):
            return time.monotonic() - begun
        said = f"{len(hosts)} hosts, {given_up(hosts)}"
        if "FAILED" in said:
            raise SystemExit(said)
        print(said, flush=True)


def sentence(status: int | None, host: Host) -> bool:
    """Whether a host ended as it should: the status, and one sentence, which is the last line."""
    text = host.log.read_text()
    *_, last = text.strip().splitlines() or [""]
    return status == RESTART and last.startswith("eeg2text run: ") and "Traceback" not in text and "    @ " not in text


@contextlib.contextmanager
def served(store: str, out: Path) -> Iterator[Callable[[str], str]]:
    if store == "folder":
        yield lambda name: str(out / "workdirs" / name)
        return
    with SERVERS[store]() as server:
        os.environ.update(server.environment)
        yield server.address


def content(workdir: str, out: Path) -> dict[str, str]:
    if "://" not in workdir:
        return what_counts(Path(workdir), out / "log_of_looking", checkpoint=False)
    from eeg2text_jax.base.stores.buckets import at_hand

    os.environ["EEG2TEXT_BUCKET_CACHE"] = str(out / "looking")
    return what_counts(Path(at_hand(workdir)), out / "log_of_looking", checkpoint=False)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("out", type=Path, help="folder for the runs; emptied first, but for compiled programs")
    parser.add_argument("--hosts", default="2", help="hosts of each start, in turn")
    parser.add_argument("--mesh", default="2,2")
    parser.add_argument("--store", default="s3", choices=("folder", *SERVERS))
    parser.add_argument("--kills", type=int, default=2)
    parser.add_argument("--stops", type=int, default=1)
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    out, rng, failures, longest = options.out.absolute(), random.Random(options.seed), 0, 0.0
    for path in [*out.glob("cache_*"), out / "looking", out / "workdirs"]:
        shutil.rmtree(path, ignore_errors=True)
    out.mkdir(parents=True, exist_ok=True)
    prepare(out / "compiled")
    mesh = tuple(map(int, options.mesh.split(",")))
    counts = itertools.cycle(map(int, options.hosts.split(",")))
    faults = [signal.SIGKILL] * options.kills + [signal.SIGSTOP] * options.stops
    rng.shuffle(faults)
    with served(options.store, out) as address:
        complete(lambda: start(out, address("one"), 1, mesh))
        wanted = content(address("one"), out)

        def compared(name: str) -> int:
            different = differing(wanted, content(address(name), out))
            print(f"{name}: {'the bytes of one process' if not different else f'{different} differ'}", flush=True)
            return bool(different)

        count = next(counts)
        whole = complete(lambda: start(out, address("undisturbed"), count, mesh))
        print(f"undisturbed: {whole:.0f} s", flush=True)
        wrong, runs, left = compared("undisturbed"), 1, list(faults)
        while left:
            hosts = start(out, address(f"struck_{runs}"), next(counts), mesh)
            said, took = disturb(hosts, left[0], SHARE * whole, rng)
            failures, longest = failures + said.startswith("FAILED"), max(longest, took or 0.0)
            print(f"{len(hosts)} hosts, {said}", flush=True)
            if took is None:  # the run is over
                wrong, runs = wrong + compared(f"struck_{runs}"), runs + 1
            elif LOST_EACH_OTHER not in said:
                left.pop(0)
        complete(lambda: start(out, address(f"struck_{runs}"), next(counts), mesh))
        wrong += compared(f"struck_{runs}")
    struck = f"SIGKILL {options.kills} times and SIGSTOP {options.stops} times on {options.store}"
    print(f"{struck}: {failures} failures, noticed in {longest:.1f} s at most")
    print(f"{runs} disturbed runs, {wrong} ends differ")
    return bool(failures or wrong)


if __name__ == "__main__":
    sys.exit(main())
