"""Strict settings for every test; set before JAX starts."""

import gc
import os
from importlib.metadata import version
from pathlib import Path

os.environ["XLA_FLAGS"] = os.environ.get("XLA_FLAGS", "") + " --xla_force_host_platform_device_count=8"
# tools/optimized_tests.sh sets JAX_DISABLE_MOST_OPTIMIZATIONS=0: programs are then compiled as for a user.
if version("jaxlib").startswith("0.10.") and os.environ.get("JAX_DISABLE_MOST_OPTIMIZATIONS") != "0":
    # By version, as an XLA that does not know a flag does not start. XLA:CPU's older code generator compiles a training
    # step in half the time, and a tenth of tracing and compiling goes into cutting modules in parts to be compiled side
    # by side.
    os.environ["XLA_FLAGS"] += " --xla_cpu_use_fusion_emitters=false --xla_cpu_parallel_codegen_split_count=1"
os.environ.setdefault("JAX_PLATFORMS", "cpu")
os.environ.setdefault("HF_HUB_OFFLINE", "1")
# Shared by the suite's processes; for the environment, so that processes which tests start have it, too.
os.environ.setdefault("JAX_COMPILATION_CACHE_DIR", str(Path(__file__).parents[1] / ".pytest_cache/jax"))
# A run that is resumed compiles its programs anew, most of them in less than the second from which JAX keeps them.
os.environ.setdefault("JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS", "0.2")
# Tests compile far more than they compute: one tiny training step compiles in 13 CPU-seconds instead of 32.
os.environ.setdefault("JAX_DISABLE_MOST_OPTIMIZATIONS", "1")

import jax
import pytest

from eeg2text_jax.base.devices.arms import _jitted
from eeg2text_jax.commands import cli

# The longest files, which begin first, so that no process is left with one of them at the end.
LONGEST = (
    "test_bench_measure.py",
    "test_site.py",
    "test_properties.py",
    "test_waves.py",
    "test_llm.py",
    "test_hosts.py",
    "test_step_one.py",
    "test_pipeline.py",
    "test_dropout.py",
    "test_program.py",
    "test_ranges.py",
    "test_stages.py",
    "test_resume.py",
    "test_types.py",
    "test_grid_meshes.py",
    "test_notebook.py",
    "test_session.py",
    "test_generate_tokens.py",
    "test_metamorphic.py",
    "test_beam_search.py",
    "test_decode_again.py",
    "test_step.py",
)

# Tracing makes many objects that stay, beside the million of the libraries: 4 % of the suite were spent on looking.
gc.set_threshold(20_000, 20, 20)
jax.config.update("jax_numpy_dtype_promotion", "strict")
jax.config.update("jax_numpy_rank_promotion", "raise")


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Mark cases that `quick` does not name as slow, and begin with the longest files."""
    cases: dict[str, list[pytest.Item]] = {}
    for item in items:
        if item.get_closest_marker("quick"):
            cases.setdefault(item.nodeid.partition("[")[0], []).append(item)
    for name, some in cases.items():
        quick = some[0].get_closest_marker("quick").args
        unknown = set(quick) - {item.callspec.id for item in some}
        if unknown and not any("[" in argument for argument in config.args):  # else single cases were asked for
            raise pytest.UsageError(f"{name} has no case {sorted(unknown)}, which its mark `quick` names")
        for item in some:
            if item.callspec.id not in quick:
                item.add_marker(pytest.mark.slow)
    order = {name: i for i, name in enumerate(LONGEST)}
    items.sort(key=lambda item: order.get(item.path.name, len(order)))
    gc.freeze()  # what is imported and collected by now stays, and is looked at no more


@pytest.fixture(scope="module", autouse=True)
def programs_of_a_file_are_its_own():
    """A file traces its training programs itself, whatever ran before it: another may have replaced parts of them."""
    _jitted.cache_clear()


@pytest.fixture
def refused(capsys):
    """Run a command that ends with status 2, and return its sentence: all that stands on stderr, or its last line."""

    def run(command: list[str], alone: bool = True) -> str:
        assert cli.main(command) == 2
        lines = capsys.readouterr().err.splitlines()
        assert len(lines) == 1 or not alone, lines
        return lines[-1]

    return run


@pytest.fixture
def printed_by(capsys):
    """Run a command that ends with a status, and return what stands on stdout, or where `to` says."""

    def run(command: list[str], status: int = 0, to: str = "out") -> str:
        assert cli.main(command) == status
        return getattr(capsys.readouterr(), to)

    return run
