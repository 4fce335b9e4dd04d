"""Helpers below all wings: words of messages, digests, names of files, data sheets of chips."""

import hashlib
import itertools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from etils import epath

from eeg2text_jax.base import cpu
from eeg2text_jax.base.devices import mesh
from eeg2text_jax.base.devices.mesh import CHIPS
from eeg2text_jax.base.errors import count_of, did_you_mean, nearest, one_line, shortlist
from eeg2text_jax.base.files import content_digest, file_digest, files_below


def test_lists_counts_and_likely_names_in_messages():
    assert shortlist(range(3), 3) == "0, 1, 2"
    assert shortlist(range(4), 3) == "0, 1, 2, ..."
    assert shortlist("abcdefghi") == "a, b, c, d, e, f, g, h, ..."
    assert [count_of(n, "channel") for n in (0, 1, 2)] == ["0 channels", "1 channel", "2 channels"]
    assert [count_of(n, "row has", "rows have") for n in (1, 12)] == ["1 row has", "12 rows have"]
    names = ["optim", "batch", "baseline", "model", "mode"]
    assert did_you_mean("ba", names) == "did you mean 'batch' or 'baseline'?"
    assert did_you_mean("opt", names) == "did you mean 'optim'?"
    assert did_you_mean("btach", names) == "did you mean 'batch'?"
    assert did_you_mean("", names) == did_you_mean("xyz", names) == "there are optim, batch, baseline, model, mode."
    assert (nearest("modl", names, 0.6), nearest("xyz", names, 0.6)) == ("model", None)
    assert one_line(ValueError("a\n\n  b" + "c" * 300)) == "a b" + "c" * 197


def test_digests_are_of_contents_alone(tmp_path):
    one, other = {"a": 1, "b": {"c": [1, 2], "d": None}}, {"b": {"d": None, "c": [1, 2]}, "a": 1}
    assert content_digest(one) == content_digest(other) != content_digest({**one, "b": {"c": [2, 1], "d": None}})
    content = bytes(range(256)) * 5000
    (tmp_path / "a").write_bytes(content)
    assert file_digest(tmp_path / "a") == hashlib.sha256(content).hexdigest()


def test_files_below_a_folder_are_named_in_the_order_of_the_alphabet(tmp_path):
    names = ["b/2", "b/10", "a.txt", "c", "b/d/e", "b.txt"]
    for name in names:
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(name)
    assert files_below(epath.Path(tmp_path)) == sorted(names)


@pytest.mark.parametrize(
    ("name", "memory", "teraflops", "gigabytes", "units", "gigabits", "axes"),
    [
        ("v4", 32, 275, 1228, 8 * 128**2, 2400, 3),
        ("v5e", 16, 197, 819, 4 * 128**2, 1600, 2),
        ("v5p", 95, 459, 2765, 8 * 128**2, 4800, 3),
        ("v6e", 32, 918, 1640, 4 * 256**2, 3200, 2),
    ],
)
def test_data_sheets_of_tpus(name, memory, teraflops, gigabytes, units, gigabits, axes):
    """In the units of Google's documentation: GiB, bfloat16 TFLOP/s, GB/s, multipliers, Gbit/s of a chip's links."""
    chip = CHIPS[name]
    assert (chip.memory, chip.flops, chip.bandwidth) == (memory * 2**30, teraflops * 1e12, gigabytes * 1e9)
    assert chip.clock == pytest.approx(chip.flops / (2 * units), rel=0.01)
    assert chip.interconnect == gigabits * 1e9 / 8 / axes


def test_data_sheets_of_gpus():
    """GB, dense TFLOP/s of tensor cores (with sparsity, twice as many are advertised), GB/s."""
    stated = {"h200": (141, 989, 4800), "h100": (80, 989, 3350), "a100-80gb": (80, 312, 2039),
              "a100-40gb": (40, 312, 1555), "l4": (24, 121, 300), "a10g": (24, 70, 600), "t4": (16, 65, 320),
              "v100": (16, 125, 900)}  # fmt: skip
    gpus = {name: chip for name, chip in CHIPS.items() if chip.platform == "cuda"}
    assert stated == {name: (chip.memory / 1e9, chip.flops / 1e12, chip.bandwidth / 1e9) for name, chip in gpus.items()}


def test_the_pace_of_products_counts_multiplications_and_additions(monkeypatch):
    """On a clock that goes on by 0.125 s at each look: two products in 0.375 s."""
    clock = itertools.count(5.0, 0.125)
    monkeypatch.setattr(mesh.time, "perf_counter", lambda: next(clock))
    assert mesh.product_pace() == 2 * mesh.PACE_SIDE**3 * 2 / 0.375


def test_sums_by_blocks_have_the_value_and_the_gradients_of_the_sum():
    """Of three blocks of two columns; the sum is one term of a loss."""
    rng = np.random.default_rng(0)
    w, x, y = (jnp.asarray(rng.normal(size=shape), jnp.float32) for shape in ((4, 3), (5, 6, 4), (5, 6, 3)))

    def sum_of(w, x, y):
        return jnp.sum(jnp.tanh(x @ w) * y)

    def loss(summed, w, x):
        return 3.0 * summed(w, x, y) ** 2 + jnp.sum(w)

    whole = jax.value_and_grad(lambda w, x: loss(sum_of, w, x), argnums=(0, 1))(w, x)
    by_blocks = jax.value_and_grad(
        lambda w, x: loss(lambda *given: cpu.summed_by_blocks(sum_of, *given, 3), w, x), argnums=(0, 1)
    )(w, x)
    for ours, expected in zip(jax.tree.leaves(by_blocks), jax.tree.leaves(whole), strict=True):
        np.testing.assert_allclose(ours, expected, rtol=1e-4, atol=1e-4)


def test_convolutions_of_uneven_volumes_are_those_of_jax():
    """Stride 2, padding 1, on volumes of 5 x 4 x 7 voxels; the transposed one is the gradient of the first."""
    rng = np.random.default_rng(0)
    x, kernel = rng.normal(size=(2, 5, 4, 7, 3)), rng.normal(size=(3, 3, 3, 3, 6))
    x, kernel = jnp.asarray(x, jnp.float32), jnp.asarray(kernel, jnp.float32)
    numbers = ("NXYZC", "XYZIO", "NXYZC")

    def by_jax(x):
        return jax.lax.conv_general_dilated(x, kernel, (2, 2, 2), [(1, 1)] * 3, dimension_numbers=numbers)

    expected, back = jax.vjp(by_jax, x)
    np.testing.assert_allclose(cpu.convolve(x, kernel), expected, rtol=1e-4, atol=1e-4)
    given = jnp.asarray(rng.normal(size=expected.shape), jnp.float32)
    np.testing.assert_allclose(cpu.convolve_back(given, kernel, (5, 4, 7)), back(given)[0], rtol=1e-4, atol=1e-4)
