"""How fast full-size checkpoints load, and how much host memory that takes.

    python tools/benchmarks/load_checkpoints.py make FOLDER bart  # random weights; bart, t5, or a folder
    python tools/benchmarks/load_checkpoints.py measure FOLDER...       # each in a process of its own; prints a table

`make` needs PyTorch and writes 1.6 GB (BART-large), 3.0 GB (T5-large) or 2.3 GB (PEGASUS-large). Memory is RssAnon,
what the process holds besides mapped files, JAX's own few hundred MB included.
"""

import argparse
import subprocess
import sys
import threading
import time
from pathlib import Path

T5_LARGE = {"d_model": 1024, "d_ff": 4096, "num_layers": 24, "num_heads": 16, "decoder_start_token_id": 0}


def make(folder: Path, what: str) -> None:
    """Writes a checkpoint with random weights; `what` is bart, t5, or a folder with a config.json."""
    import transformers

    configs = {
        "bart": lambda: transformers.BartConfig(),  # its defaults are BART-large
        "t5": lambda: transformers.T5Config(**T5_LARGE),
    }
    config = configs[what]() if what in configs else transformers.AutoConfig.from_pretrained(what)
    model = transformers.AutoModelForSeq2SeqLM.from_config(config)
    model.save_pretrained(folder, max_shard_size="100GB")
    print(f"{folder}: {sum(p.numel() for p in model.parameters()) / 1e6:.0f} M parameters")


def anonymous_bytes() -> int:
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith("RssAnon:"):
            return int(line.split()[1]) * 1024
    raise RuntimeError("/proc/self/status has no RssAnon")


class PeakMemory(threading.Thread):
    def __init__(self) -> None:
        super().__init__(daemon=True)
        self.peak, self._done = 0, threading.Event()

    def run(self) -> None:
        while not self._done.wait(0.002):
            self.peak = max(self.peak, anonymous_bytes())

    def stop(self) -> int:
        self._done.set()
        self.join()
        return self.peak


def measure(folder: Path) -> None:
    import jax

    from eeg2text_jax.models.pretrained.load import load_pretrained

    jax.block_until_ready(jax.numpy.zeros(()))  # starts the backend
    size = sum(path.stat().st_size for path in folder.glob("*") if path.suffix in (".safetensors", ".msgpack", ".bin"))
    memory = PeakMemory()
    memory.start()
    start = time.perf_counter()
    _, params = load_pretrained(folder)
    jax.block_until_ready(params)
    seconds = time.perf_counter() - start
    peak = memory.stop()
    held = sum(leaf.nbytes for leaf in jax.tree.leaves(params))
    print(
        f"| {folder.name} | {size / 1e9:.2f} GB | {held / 1e9:.2f} GB | {seconds:.2f} s | "
        f"{size / 1e9 / seconds:.2f} GB/s | {peak / 1e9:.2f} GB | {peak / held:.2f} |"
    )


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    commands = parser.add_subparsers(dest="command", required=True)
    command = commands.add_parser("make")
    command.add_argument("folder", type=Path)
    command.add_argument("what", help="bart, t5, or a folder with a config.json")
    command = commands.add_parser("measure")
    command.add_argument("folders", type=Path, nargs="+")
    command.add_argument("--row", action="store_true", help=argparse.SUPPRESS)
    flags = parser.parse_args()
    if flags.command == "make":
        make(flags.folder, flags.what)
    elif flags.row:
        measure(flags.folders[0])
    else:
        print("| checkpoint | file | parameters | time | speed | peak RssAnon | peak / parameters |")
        print("|---|---|---|---|---|---|---|", flush=True)
        for folder in flags.folders:
            subprocess.run([sys.executable, __file__, "measure", folder, "--row"], check=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
