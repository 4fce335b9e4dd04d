"""One of two hosts with four devices each, joined by JAX; writes what it saw. Run by test_hosts.py."""

import json
import os
import sys

import jax

sys.path.insert(0, os.path.dirname(__file__))
import tiny_grid

from eeg2text_jax.parallel.distributed import initialize, is_main, main_first
from eeg2text_jax.parallel.mesh import make_mesh
from eeg2text_jax.parallel.partition import REPLICATED


def main(out: str) -> None:
    if "EEG2TEXT_PROCESSES" in os.environ:
        initialize("env")
    jax.config.update("jax_disable_most_optimizations", True)
    order = main_first(lambda: os.path.exists(f"{out}.first") or open(f"{out}.first", "w").close())
    mesh = make_mesh(2, 4)
    program = tiny_grid.make_program(tiny_grid.ARMS[:2])
    state, losses, _ = tiny_grid.train(program, mesh, REPLICATED, steps=3)
    tokens, _, _ = tiny_grid.decode(program, state.params, mesh)
    seen = {
        "losses": losses.tolist(),
        "tokens": tokens.tolist(),
        "devices": [jax.local_device_count(), jax.device_count()],
        "main": is_main(),
        "found_the_first": bool(order),
    }
    with open(f"{out}.{jax.process_index()}.json", "w") as file:
        json.dump(seen, file)


if __name__ == "__main__":
    main(sys.argv[1])
