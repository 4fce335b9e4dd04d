"""Bytes to and from HBM, and loops that take longer for them than the compiler's estimate says."""

import pytest
from test_hlo_clock import KILOHERTZ, cycles, loop, program

from eeg2text_jax.base.chips.hlo_clock import estimate, hbm_bytes
from eeg2text_jax.base.chips.hlo_text import parse_module

NEAR = "{1,0:T(8,128)S(1)}"  # the memory near a TPU's cores
FAR = "{1,0:T(8,128)}"
ROWS = "bf16[16,280]{1,0:T(8,128)(2,1)}"  # 280 columns are padded to 384
PADDED = 16 * 384 * 2
UPDATE = """%fused (a: bf16[16,280], b: bf16[8,280]) -> bf16[16,280] {
  %a = bf16[16,280]{1,0:T(8,128)(2,1)} parameter(0)
  %b = bf16[8,280]{1,0:T(8,128)(2,1)} parameter(1)
  %zero = s32[] constant(0)
  ROOT %c = bf16[16,280]{1,0:T(8,128)(2,1)} dynamic-update-slice(%a, %b, %zero, %zero)
}
"""
SLICE = """%fused (a: bf16[16,280]) -> bf16[8,280] {
  %a = bf16[16,280]{1,0:T(8,128)(2,1)} parameter(0)
  %zero = s32[] constant(0)
  ROOT %c = bf16[8,280]{1,0:T(8,128)(2,1)} dynamic-slice(%a, %zero, %zero), dynamic_slice_sizes={8,280}
}
"""
NESTED = """%cut (a: bf16[16,280]) -> bf16[8,280] {
  %a = bf16[16,280]{1,0:T(8,128)(2,1)} parameter(0)
  %b = bf16[16,280]{1,0:T(8,128)(2,1)} bitcast(%a)
  ROOT %c = bf16[8,280]{1,0:T(8,128)(2,1)} slice(%b), slice={[0:8], [0:280]}
}

%whole (a: bf16[16,280]) -> bf16[16,280] {
  %a = bf16[16,280]{1,0:T(8,128)(2,1)} parameter(0)
  ROOT %b = bf16[16,280]{1,0:T(8,128)(2,1)} bitcast(%a)
}

%fused (a: bf16[16,280]) -> bf16[8,280] {
  %a = bf16[16,280]{1,0:T(8,128)(2,1)} parameter(0)
  ROOT %c = bf16[8,280]{1,0:T(8,128)(2,1)} fusion(%a), kind=kLoop, calls=%cut
}
"""
WHOLE = NESTED.replace("=%cut", "=%whole")
SLICED = f"(({ROWS}), bf16[4,280]{{1,0:T(4,128)(2,1)S(1)}}, s32[]{{:S(2)}}) slice-start(%given)"
FUSED = "bf16[8,280]{1,0:T(8,128)(2,1)S(1)} fusion(%given), kind=kLoop, calls=%fused"


@pytest.mark.parametrize(
    ("given", "line", "moved", "computations"),
    [
        (f"f32[8,128]{FAR}", f"f32[8,128]{FAR} negate(%given)", 8192, ""),
        (f"f32[8,128]{FAR}", f"f32[8,128]{NEAR} negate(%given)", 4096, ""),
        (f"f32[8,128]{NEAR}", f"f32[8,128]{NEAR} negate(%given)", 0, ""),
        (ROWS, "bf16[16,280]{1,0:T(8,128)(2,1)S(1)} negate(%given)", PADDED, ""),
        (ROWS, f"({ROWS[:-1]}S(1)}}, {ROWS}, u32[]{{:S(2)}}) copy-start(%given)", PADDED, ""),
        (ROWS, SLICED, 4 * 384 * 2, ""),
        (ROWS, f"{ROWS} get-tuple-element(%given), index=0", 0, ""),
        (ROWS, f"{ROWS} fusion(%given, %near), kind=kLoop, calls=%fused", 2 * 8 * 384 * 2, UPDATE),
        (ROWS, FUSED, PADDED // 2, SLICE),
        (ROWS, FUSED, PADDED // 2, NESTED),
        (ROWS, FUSED, PADDED, WHOLE),
    ],
)
def test_bytes_of_an_instruction(given, line, moved, computations):
    near = "  %near = bf16[8,280]{1,0:T(8,128)(2,1)S(1)} parameter(2)\n"
    module = parse_module(program(f"  %given = {given} parameter(1)\n{near}  %made = {line}", computations))
    assert hbm_bytes(module, "main.1", module.by_name["main.1"]["made"]) == moved


def test_a_loop_takes_the_larger_of_its_estimate_and_its_traffic():
    """8192 bytes an iteration, and 16 of its counter, take 10 ms; the estimate says 7."""
    body = f"  %x.1 = f32[8,128]{FAR} negate(%x), {cycles(7)}"
    computations, caller = loop("search", body.replace("(%x)", "(%far)"), None)
    computations = computations.replace("  %x.1 =", f"  %far = f32[8,128]{FAR} copy-done(%x)\n  %x.1 =", 1)
    text = program(f"  %a = f32[8]{{0}} sine(%p), {cycles(5)}\n{caller}", computations)
    bound = estimate(text, KILOHERTZ, [55], bandwidth=820.8e3)
    assert (bound.milliseconds, bound.waiting, bound.bound) == pytest.approx((5 + 55 * 7, 55 * 3, 5 + 55 * 10))
    assert bound.turns[0].bound == pytest.approx(10)
    assert bound.turns[0].moved == 8192 + 16
    assert sum(bound.parts.values()) == pytest.approx(bound.bound)
    fast = estimate(text, KILOHERTZ, [55], bandwidth=1e9)
    assert (fast.waiting, fast.bound) == (0, fast.milliseconds)
    assert estimate(text, KILOHERTZ, [55]).moved == 0
