"""The preflight of a configuration in words: memory, what crosses the mesh, and a model of the time."""

from collections.abc import Callable

from eeg2text_jax.parallel.mesh import DATA
from eeg2text_jax.preflight.chips import Chip
from eeg2text_jax.preflight.flops import search_flops, training_flops
from eeg2text_jax.preflight.programs import Compiled, Preflight

# Share of the HBM that a program gets: the runtime keeps some for itself.
USABLE = 0.97


def report(preflight: Preflight, chip: Chip) -> str:
    """Compiles both programs at the configured sizes and says what they take, then looks for the largest batch."""
    config, mesh, (words, tokens) = preflight.config, preflight.mesh, preflight.bucket
    n_arms = max(len(config.grid.train_conditions) * len(config.grid.seeds), 1)
    share = n_arms / mesh.size
    size, decode = config.batch.size, config.decode
    flops = training_flops(preflight.model, size, words, tokens) * share
    search = search_flops(preflight.model, decode.batch_size, words, decode.max_length, decode.num_beams) * share
    limit = int(chip.hbm * USABLE)
    train = preflight.train(size)
    lines = [
        f"{mesh.size} x {chip.name}, {chip.hbm / 2**30:.0f} GiB each, mesh {dict(mesh.shape)}; "
        f"{n_arms} arms, {words} words, {tokens} tokens",
        *describe(f"training step, batch {size}", train, limit),
        *modelled(flops, train, chip),
    ]
    lines += describe(f"beam search, batch {decode.batch_size}", found := preflight.decode(decode.batch_size), limit)
    lines += modelled(search, found, chip)
    largest = largest_batch(preflight.train, size, train, mesh.shape[DATA], limit)
    lines.append(f"largest batch that fits (compiled): {largest or 'none: take parallel.fsdp, remat or more devices'}")
    return "\n".join(lines)


def describe(name: str, compiled: Compiled, limit: int) -> list[str]:
    """What the compiler says of a program."""
    fits = "fits" if compiled.total <= limit else "DOES NOT FIT"
    lines = [f"{name}: {compiled.total / 2**30:.2f} GiB a device, {fits} (compiled in {compiled.seconds:.0f} s)"]
    if compiled.arguments is None:
        return [*lines, "  refused by the compiler; take a smaller batch, parallel.fsdp or more devices"]
    lines.append(
        f"  arguments {compiled.arguments / 2**30:.2f} GiB, temporaries {compiled.temporaries / 2**30:.2f} GiB"
    )
    crossing = ", ".join(f"{axis} {size / 2**20:.1f} MiB" for axis, size in sorted(compiled.traffic.items()))
    lines.append(f"  collectives, bytes a device by mesh axis: {crossing or 'none'}")
    return lines


def modelled(flops: float, compiled: Compiled, chip: Chip) -> list[str]:
    """Bounds from the chip's data sheet, never reached in practice."""
    line = f"  modelled, not measured: {flops / 1e12:.3f} TFLOP a device, at least {1e3 * flops / chip.flops:.1f} ms"
    if compiled.arguments is None:
        return [line]
    return [f"{line} by FLOPs, {1e3 * compiled.arguments / chip.bandwidth:.1f} ms to read the arguments once"]


def largest_batch(compile_train: Callable[[int], Compiled], size: int, first: Compiled, step: int, limit: int) -> int:
    """The largest multiple of `step` that fits: a line through two compilations, confirmed by a third.

    Where memory does not grow along the line, the guess is lowered by an eighth until a compilation confirms it.
    """
    other = max(size // 2 // step * step, step)
    if other == size:
        other = 2 * size
    second = compile_train(other)
    slope = (first.total - second.total) / (size - other)
    guess = int((size + (limit - first.total) / max(slope, 1.0)) // step * step)
    while guess >= step:
        if compile_train(guess).total <= limit:
            return guess
        guess = min(int(guess * 7 / 8) // step * step, guess - step)
    return 0
