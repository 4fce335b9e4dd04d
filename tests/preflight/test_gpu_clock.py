"""The clock of GPUs: whose time counts, launches in loops, and programs compiled where the compiler is."""

import calibrate_gpu
import jax
import jax.numpy as jnp
import pytest
from tiny_run import as_flag

from eeg2text_jax.base.chips.gpu_clock import (
    LAUNCH,
    OTHERS,
    OWN,
    PRODUCTS,
    Correction,
    Launches,
    corrections,
    estimate,
    launches,
    measured,
)
from eeg2text_jax.base.chips.hlo_clock import Walk
from eeg2text_jax.base.chips.hlo_text import parse_module
from eeg2text_jax.base.devices.mesh import CHIPS
from eeg2text_jax.commands.preflight.compiling import TARGETS, has_gpu_compiler

H100 = CHIPS["h100"]
MILLION = "f32[1000,1000]{1,0}"  # 4 MB: read and written in 2.39 us


def models(**times: float) -> str:
    found = ",".join(
        f'{{"exec_time_us":{time},"compute_time_us":0.1,"memory_access_time_us":0.2,"name":"{name.replace("_", "-")}"}}'
        for name, time in times.items()
    )
    return f'backend_config={{"reification_cost":[{found}]}}'


def program(root: str, computations: str = "", more: str = "") -> str:
    return f"""HloModule jit_step
{computations}
ENTRY %main (x: f32[1000,1000]) -> f32[1000,1000] {{
  %x = {MILLION} parameter(0)
{more}  ROOT {root}
}}
"""


def negation(cost: str) -> str:
    fused = f"""
%fused (p: f32[1000,1000]) -> f32[1000,1000] {{
  %p = {MILLION} parameter(0)
  ROOT %negate = {MILLION} negate(%p)
}}
"""
    about = f'kind=kLoop, calls=%fused, metadata={{op_name="jit(step)/encoder/neg"}}, {cost}'
    return program(f"%fusion = {MILLION} fusion(%x), {about}", fused)


@pytest.mark.parametrize(("given", "kept"), [(3.0, True), (13.0, True), (15.0, False), (1.0, False), (2510.0, False)])
def test_a_time_counts_if_it_is_near_the_roofline(given, kept):
    """Of a roofline of 2.39 us: not below it, nor beyond five times it and a launch."""
    found = estimate(negation(models(indexing_cost_model=given)), H100, corrected={})
    ours = 8e6 / H100.bandwidth / 0.8 * 1e6 + LAUNCH
    assert found.milliseconds == pytest.approx((given if kept else ours) / 1e3)
    assert (found.replaced, found.executions, found.modelled) == (int(not kept), 1, pytest.approx(given / 1e3))
    assert found.parts == {"encoder": found.milliseconds}


def test_a_slice_is_not_its_array():
    """A fusion that slices 1 row of 1,000 moves 8 kB, not 4 MB: a model's 1 us is above that roofline."""
    fused = f"""
%fused (p: f32[1000,1000], i: s32[]) -> f32[1,1000] {{
  %p = {MILLION} parameter(0)
  %i = s32[] parameter(1)
  %zero = s32[] constant(0)
  ROOT %slice = f32[1,1000]{{1,0}} dynamic-slice(%p, %i, %zero), dynamic_slice_sizes={{1,1000}}
}}
"""
    root = f"%fusion = f32[1,1000]{{1,0}} fusion(%x, %i), kind=kLoop, calls=%fused, {models(indexing_cost_model=1.0)}"
    found = estimate(program(root, fused, "  %i = s32[] parameter(1)\n"), H100, corrected={})
    assert (found.replaced, found.milliseconds) == (0, pytest.approx(1e-3))


@pytest.mark.parametrize(("given", "kept"), [(5.0, True), (16163.0, False), (1e-3, False)])
def test_products(given, kept):
    cost = f'"lhs_contracting_dimensions":["1"],{models(sol=given).removeprefix("backend_config={")}'
    call = f'custom-call(%x, %y), custom_call_target="__cublas$lt$matmul", backend_config={{{cost}'
    text = program(f"%dot = ({MILLION}, s8[4096]{{0}}) {call}", more=f"  %y = {MILLION} parameter(1)\n")
    found = estimate(text, H100, corrected={})
    ours = 12e6 / H100.bandwidth / 0.8 * 1e6 + LAUNCH
    assert found.milliseconds == pytest.approx((given if kept else ours) / 1e3)
    assert found.replaced == int(not kept)


TOP = '(f32[1000,10]{1,0}, s32[1000,10]{1,0}) custom-call(%x), custom_call_target="__gpu$TopK"'
ATTENTION = program(f'%kernel = {MILLION} custom-call(%x), custom_call_target="__gpu$xla.gpu.triton"')


@pytest.mark.parametrize(
    ("text", "seconds"),
    [(program(f"%top = {TOP}"), (4e6 + 8e4) / 116e9), (ATTENTION, 8e6 / H100.bandwidth / 0.5 + LAUNCH / 1e6)],
    ids=["the top of rows", "our kernels"],
)
def test_kernels_without_a_model_have_a_measured_rate(text, seconds):
    found = estimate(text, H100, corrected={})
    assert found.milliseconds == pytest.approx(1e3 * seconds)
    assert (found.missing, found.replaced) == ({}, 0)


@pytest.mark.parametrize(("text", "kind"), [(negation(models(sol=3.0)), OTHERS), (ATTENTION, OWN), (ATTENTION, "")])
def test_corrections_belong_to_kinds_of_kernels(text, kind):
    plain = 1e3 * estimate(text, H100, corrected={}).milliseconds
    others = {one: Correction(7.0, 99.0) for one in (PRODUCTS, OWN, OTHERS) if one != kind and kind}
    for correction, expected in ((Correction(2.0, 0.1), 2.0 * plain), (Correction(0.5, 50.0), 50.0)):
        found = estimate(text, H100, corrected={**others, kind: correction})
        assert 1e3 * found.milliseconds == pytest.approx(expected if kind else plain)
    assert found.modelled == pytest.approx(plain / 1e3)


def test_the_corrections_that_are_shipped():
    """Each kind of kernel has one, and a program is off by at most 3 % with those that the other programs gave."""
    assert set(corrections()) == {PRODUCTS, OWN, OTHERS}
    rows = measured()["programs"].values()
    assert len(rows) == 3
    assert all(row["by_the_others"] == pytest.approx(row["measured"], rel=0.03) for row in rows)


def test_a_correction_is_found_from_sums_of_kernels():
    """Two programs in which kernels took 0.8 times their estimate, and at least 3 us."""
    times = {"a": [1.0, 2.0, 40.0], "b": [3.0, 10.0, 100.0], "c": []}
    lines = {name: [(OTHERS, each, 10) for each in given] + [(OWN, 500.0, 1)] for name, given in times.items()}
    took = {name: sum(10 * max(3.0, 0.8 * each) for each in given) / 1e3 for name, given in times.items()}
    found = {name: {"kinds": {OTHERS: [30, spent], OWN: [1, 9.0]}} for name, spent in took.items()}
    assert calibrate_gpu.correction(OTHERS, found, lines, times) == pytest.approx((0.8, 3.0))


def test_targets_are_the_chips_of_the_table():
    assert set(TARGETS) <= set(CHIPS)
    for name, target in TARGETS.items():
        assert target.memory == pytest.approx(CHIPS[name].memory, rel=0.08)
        assert target.bandwidth == pytest.approx(CHIPS[name].bandwidth, rel=0.01)
        assert target.text().count("{") == target.text().count("}")


@pytest.mark.skipif(not has_gpu_compiler(), reason="needs the extra preflight-cuda")
@pytest.mark.parametrize("topology", ["h100:2", "a100-80gb:1"])
def test_programs_compile_for_gpus_that_are_not_there(topology, printed_by):
    printed = printed_by(["preflight", as_flag(parallel__mesh=(0, 0)), f"--topology={topology}"])
    told = (
        ("corrected by what an NVIDIA H200 took", "launches by the host", "command buffers")
        if topology == "h100:2"
        else ("the compiler has none for this chip",)
    )
    assert all(words in printed for words in told)
    assert "across arms: none" in printed


PLAN = """000: kCommandBuffer [source       | next=003 (1)]
    001: kCopy         [source       | next=002 (1)] kCopy
    002: kCustomKernel [prev=001 (1) | sink        ] loop_add_fusion grid: [1, 1, 1] threads: [1, 1, 1]
003: kCustomKernel  [prev=000 (1) | next=004 (1)] loop_broadcast_fusion grid: [2, 1, 1] threads: [128, 1, 1]
004: kWhile         [prev=003 (1) | sink        ]
condition:
    005: kCustomKernel [source | sink] loop_compare_fusion grid: [1, 1, 1] threads: [1, 1, 1]
  body:
    000: kCommandBuffer      [source       | next=006 (1)]
        005: kCublasLtMatmul [source       | next=006 (1)] kCublasLtMatmul
    006: kDynamicSliceFusion [prev=000 (1) | next=008 (1)] params=1, results=1
        007: kCopy [source | sink] kCopy
    008: kWhile              [prev=006 (1) | sink        ]
    condition:
        009: kCustomKernel [source | sink] loop_compare_fusion_1 grid: [1, 1, 1] threads: [1, 1, 1]
      body:
        010: kCopy [source | sink] kCopy
011: kCopy          [prev=004 (1) | sink        ] kCopy
"""


def test_launches_by_the_host():
    """Of loops of 10 and, inside, 5 turns: a command buffer is one launch, and so is a slice with its copy."""
    outside = 1 + 1 + 10 * (1 + 1 + 1) + 50 * (1 + 1) + 1  # the fourth is a loop's condition and its body
    assert launches(PLAN, [10, 5]) == Launches(host=outside, buffers=11, buffered=2 + 10)


@pytest.mark.parametrize("turns", [[10], [10, 5, 2]])
def test_a_plan_of_another_program(turns):
    with pytest.raises(ValueError, match="loops"):
        launches(PLAN, turns)
    assert estimate(negation(models(indexing_cost_model=3.0)), H100, plan=PLAN).launched is None


def test_nested_loops_are_met_in_the_order_of_the_plan():
    """Loops of unknown length are walked twice, and counted once."""

    def twice(x: jax.Array) -> jax.Array:
        def inner(x: jax.Array) -> jax.Array:
            return jax.lax.fori_loop(0, 7, lambda _, x: jnp.sin(x), x)

        return jax.lax.while_loop(lambda x: x.sum() < 9.0, lambda x: inner(x) + 1.0, inner(x))

    text = jax.jit(twice).lower(jnp.zeros(8)).compile().as_text()
    walk = Walk(parse_module(text), 1.0, [3])
    walk.whole()
    assert walk.loops == [7, 3, 7]
