"""Training of the snapshot stage on volumes, beside PyTorch in the same run: seconds a step and their ratio.

python tools/benchmarks/volume_speed.py [--volumes 32] [--steps 5] [--threads 2]

Both have the same network (four convolutions, four transposed ones, GELU, d = 768), the same weights and volumes of
64 x 64 x 27, float32, MAE and AdamW; the first losses must agree. Steps alternate, and the medians are compared.
"""

import argparse
import statistics
import time

import jax
import numpy as np
import optax
import torch

from eeg2text_jax.models.brain import ReconstructionModel, halved
from eeg2text_jax.models.spec import EEGSpec
from eeg2text_jax.training.step import reconstruction_loss

VOLUME, CHANNELS, WIDTH, LR = (64, 64, 27), (16, 32, 64, 128), 768, 1e-4
AXES = (2, 3, 4, 1, 0)  # of PyTorch's kernels in our order


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--volumes", type=int, default=32)
    parser.add_argument("--steps", type=int, default=5)
    parser.add_argument("--threads", type=int, default=2)
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    x = np.random.default_rng(0).normal(size=(options.volumes, *VOLUME)).astype(np.float32)
    theirs = Theirs()
    ours = our_step(weights(theirs), x)
    both = {"eeg2text_jax": ours, "PyTorch": their_step(theirs, x)}
    first = {name: step() for name, step in both.items()}
    assert abs(first["eeg2text_jax"] - first["PyTorch"]) < 1e-4, first
    times: dict[str, list[float]] = {name: [] for name in both}
    for _ in range(options.steps):
        for name, step in both.items():
            begun = time.perf_counter()
            step()
            times[name].append(time.perf_counter() - begun)
    medians = {name: statistics.median(taken) for name, taken in times.items()}
    for name, taken in medians.items():
        rate = options.volumes / taken
        print(f"{name:<13} {taken:6.3f} s a step of {options.volumes} volumes, {rate:6.1f} volumes/s")
    print(f"eeg2text_jax has {medians['PyTorch'] / medians['eeg2text_jax']:.2f} times PyTorch's speed")


class Theirs(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        pairs = list(zip((1, *CHANNELS), CHANNELS, strict=False))
        self.grids = halved(VOLUME, len(CHANNELS))
        inner = int(np.prod(self.grids[-1])) * CHANNELS[-1]
        self.there = torch.nn.ModuleList(torch.nn.Conv3d(a, b, 3, 2, 1) for a, b in pairs)
        self.down, self.up = torch.nn.Linear(inner, WIDTH), torch.nn.Linear(WIDTH, inner)
        self.back = torch.nn.ModuleList(torch.nn.ConvTranspose3d(b, a, 3, 2, 1) for a, b in pairs)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        gelu, h = torch.nn.functional.gelu, x[:, None]
        for conv in self.there:
            h = gelu(conv(h))
        h = gelu(self.up(self.down(h.permute(0, 2, 3, 4, 1).reshape(len(x), -1))))
        h = h.reshape(len(x), *self.grids[-1], CHANNELS[-1]).permute(0, 4, 1, 2, 3)
        for number in reversed(range(len(self.back))):
            h = self.back[number](h, output_size=self.grids[number])
            h = gelu(h) if number else h
        return h[:, 0]


def weights(theirs: Theirs) -> dict:
    def kernel(module: torch.nn.Module) -> dict:
        array = module.weight.detach().numpy()
        array = array.T if array.ndim == 2 else array.transpose(AXES)
        return {"kernel": array.copy(), "bias": module.bias.detach().numpy().copy()}

    def stack(modules: torch.nn.ModuleList) -> dict:
        return {f"conv_{number}": kernel(module) for number, module in enumerate(modules)}

    snapshot = {**stack(theirs.there), "outer": kernel(theirs.down)}
    return {"eeg": {"snapshot": snapshot}, "mirror": {**stack(theirs.back), "outer": kernel(theirs.up)}}


def our_step(params: dict, x: np.ndarray):
    spec = EEGSpec(int(np.prod(VOLUME)), 1, 8, 8, WIDTH, 0.0, (), "unicorn", VOLUME, CHANNELS, 0, "gelu")
    model, optimizer = ReconstructionModel(spec, "snapshot", 1), optax.adamw(LR, weight_decay=0.01)
    assert jax.tree.map(np.shape, params) == jax.tree.map(lambda leaf: leaf.shape, model.shapes)
    given = jax.numpy.asarray(x.reshape(-1, 1, *VOLUME))
    mask, weight = np.ones(given.shape[:2], bool), np.ones(len(given), np.float32)

    def loss(params):
        made, judged = model.reconstruct(params, given, mask)
        total, count = reconstruction_loss(given, made, judged, weight, "mae")
        return total / count

    def update(params, opt_state):
        value, gradient = jax.value_and_grad(loss)(params)
        updates, opt_state = optimizer.update(gradient, opt_state, params)
        return optax.apply_updates(params, updates), opt_state, value

    compiled = jax.jit(update, donate_argnums=(0, 1))
    state = [jax.tree.map(jax.numpy.asarray, params), jax.jit(optimizer.init)(params)]

    def step() -> float:
        *state[:], value = compiled(*state)
        return float(value)

    return step


def their_step(network: Theirs, x: np.ndarray):
    optimizer, given = torch.optim.AdamW(network.parameters(), lr=LR, weight_decay=0.01), torch.tensor(x)

    def step() -> float:
        optimizer.zero_grad()
        loss = (network(given) - given).abs().mean()
        loss.backward()
        optimizer.step()
        return float(loss.detach())

    return step


if __name__ == "__main__":
    main()
