"""Strict settings for every test; set before JAX starts."""

import os
from importlib.metadata import version
from pathlib import Path

os.environ["XLA_FLAGS"] = os.environ.get("XLA_FLAGS", "") + " --xla_force_host_platform_device_count=8"
if version("jaxlib").startswith("0.10."):  # an XLA that does not know a flag does not start
    # XLA:CPU's older code generator compiles a training step in half the time.
    os.environ["XLA_FLAGS"] += " --xla_cpu_use_fusion_emitters=false"
os.environ.setdefault("JAX_PLATFORMS", "cpu")
os.environ.setdefault("HF_HUB_OFFLINE", "1")
# Shared by the suite's processes; for the environment, so that processes which tests start have it, too.
os.environ.setdefault("JAX_COMPILATION_CACHE_DIR", str(Path(__file__).parents[1] / ".pytest_cache/jax"))
# Tests compile far more than they compute: one tiny training step compiles in 13 CPU-seconds instead of 32.
os.environ.setdefault("JAX_DISABLE_MOST_OPTIMIZATIONS", "1")

import jax

jax.config.update("jax_numpy_dtype_promotion", "strict")
jax.config.update("jax_numpy_rank_promotion", "raise")
