"""The compiler's clock on programs written by hand, whose cycles are known."""

import pytest

from eeg2text_jax.base.chips.hlo_clock import (
    COMMUNICATION,
    COPIES,
    FILLS,
    OTHER,
    Missing,
    UnknownLoop,
    estimate,
    parts_of,
)
from eeg2text_jax.base.chips.hlo_text import loop_length, parse_instruction, parse_module

KILOHERTZ = 1e3  # a cycle is a millisecond


def cycles(n: int) -> str:
    return f'backend_config={{"flag_configs":[],"window_config":{{"estimated_cycles":"{n}","is_mask":false}}}}'


def scope(path: str) -> str:
    return f'metadata={{op_name="jit(step)/{path}" stack_frame_id=3}}'


def loop(name: str, body: str, limit: int | None, start: int = 0, step: int = 1, kind: str = "s32") -> tuple[str, str]:
    """(computations, lines of the caller) of a loop over `(counter, x)` as libtpu writes a scan."""
    data = "%y = pred[]{:T(512)} get-tuple-element(%c), index=1"
    root = f"ROOT %lt = pred[]{{:T(512)}} compare(%i, %n), direction=LT, {scope('while/cond/lt')}"
    condition = [
        f"  %c = ({kind}[]{{:T(128)}}, /*index=1*/f32[8]{{0:T(8,128)(2,1)S(1)}}) parameter(0)",
        f"  %i = {kind}[]{{:T(128)}} get-tuple-element(%c), index=0",
        f"  %n = {kind}[]{{:T(128)}} constant({limit})",
        f"  {root}" if limit is not None else f"  ROOT {data}",
    ]
    computations = f"""
%{name}_condition (c: ({kind}[], f32[8])) -> pred[] {{
{chr(10).join(condition)}
}}

%{name}_body (b: ({kind}[], f32[8])) -> ({kind}[], f32[8]) {{
  %b = ({kind}[]{{:T(128)}}, f32[8]{{0:T(8,128)}}) parameter(0)
  %i = {kind}[]{{:T(128)}} get-tuple-element(%b), index=0
  %copied = {kind}[]{{:T(128)}} copy(%i), {cycles(0)}
  %one = {kind}[]{{:T(128)}} constant({step})
  %next = {kind}[]{{:T(128)S(6)}} add(%copied, %one), {scope("while/body/add")}
  %x = f32[8]{{0:T(8,128)}} get-tuple-element(%b), index=1
{body}
  ROOT %out = ({kind}[], f32[8]) tuple(%next, %x.1)
}}
"""
    caller = f"""
  %{name}_start = {kind}[]{{:T(128)}} constant({start})
  %{name}_init = ({kind}[], f32[8]) tuple(%{name}_start, %p)
  %{name} = ({kind}[], f32[8]) while(%{name}_init), condition=%{name}_condition, body=%{name}_body"""
    return computations, caller


def program(entry: str, computations: str = "") -> str:
    return f"""HloModule jit_step, is_scheduled=true
{computations}
ENTRY %main.1 (p: f32[8]) -> f32[8] {{
  %p = f32[8]{{0:T(8,128)}} parameter(0)
{entry}
}}
"""


def test_loops_in_loops_count_their_turns():
    inner, call_inner = loop("inner", f"  %x.1 = f32[8]{{0}} negate(%x), {cycles(7)}", limit=5)
    body = call_inner.replace("%p)", "%x)") + f"\n  %x.1 = f32[8]{{0}} negate(%x), {cycles(100)}"
    outer, call_outer = loop("outer", body, limit=3)
    found = estimate(program(f"  %a = f32[8]{{0}} sine(%p), {cycles(1000)}\n{call_outer}", inner + outer), KILOHERTZ)
    assert found.milliseconds == 1000 + 3 * (100 + 5 * 7)
    assert [cost.times for cost in found.costs] == [1, 3, 15]
    assert [cost.milliseconds for cost in found.costs] == [1000, 300, 105]
    assert estimate(program(call_outer, inner + outer), 2 * KILOHERTZ).milliseconds == 3 * (100 + 5 * 7) / 2


@pytest.mark.parametrize(
    ("limit", "start", "step", "kind", "turns"),
    [(12, 0, 1, "s32", 12), (8, 0, 1, "u32", 8), (12, 2, 1, "s32", 10), (12, 0, 5, "s32", 3), (3, 9, 1, "s32", 0)],
)
def test_lengths_of_loops_are_counted(limit, start, step, kind, turns):
    computations, caller = loop("scan", f"  %x.1 = f32[8]{{0}} negate(%x), {cycles(7)}", limit, start, step, kind)
    module = parse_module(program(caller, computations))
    (line,) = [line for _, line in module.lines() if line.op == "while"]
    assert loop_length(module, "main.1", line) == turns
    assert estimate(program(caller, computations), KILOHERTZ).milliseconds == 7 * turns


def test_a_length_that_is_written_counts_before_all():
    computations, caller = loop("scan", f"  %x.1 = f32[8]{{0}} negate(%x), {cycles(7)}", None)
    written = caller + ', backend_config={"known_trip_count":{"n":"4"}}'
    assert estimate(program(written, computations), KILOHERTZ).milliseconds == 28


@pytest.mark.parametrize(
    ("what", "old", "new"),
    [
        ("a condition on data", "", ""),
        ("a limit that is computed", "%n = s32[]{:T(128)} constant(9)", "%n = s32[] get-tuple-element(%c), index=1"),
        ("a start that is computed", "%scan_start = s32[]{:T(128)} constant(0)", "%scan_start = s32[] bitcast(%p)"),
        ("a step that is computed", "%one = s32[]{:T(128)} constant(1)", "%one = s32[] get-tuple-element(%b), index=1"),
        ("no step at all", "tuple(%next, %x.1)", "tuple(%i, %x.1)"),
        ("another comparison", "direction=LT", "direction=NE"),
    ],
)
def test_a_loop_of_unknown_length_is_an_error_and_not_one(what, old, new):
    body = f"  %x.1 = f32[8]{{0}} negate(%x), {cycles(7)}"
    computations, caller = loop("scan", body, 9 if old else None)
    text = program(caller, computations)
    assert not old or old in text
    with pytest.raises(UnknownLoop, match="trip count of the loop %scan"):
        estimate(text.replace(old, new) if old else text, KILOHERTZ)


def test_a_length_that_is_told_gives_one_turn_apart():
    body = f"  %x.1 = f32[8]{{0}} negate(%x), {cycles(7)}, {scope('while/body/decoder/neg')}"
    computations, caller = loop("search", body, None)
    text = program(f"  %a = f32[8]{{0}} sine(%p), {cycles(5)}\n{caller}", computations)
    found = estimate(text, KILOHERTZ, [55])
    assert found.milliseconds == 5 + 55 * 7
    assert [turn.milliseconds for turn in found.turns] == [7]
    assert found.turns[0].parts == {"decoder": 7}
    assert estimate(text, KILOHERTZ, [0]).milliseconds == 5
    with pytest.raises(UnknownLoop, match="more than there are loops"):
        estimate(text, KILOHERTZ, [55, 0])


def test_what_is_fused_is_not_counted_again():
    fused = f"""
%inner (q: f32[8]) -> f32[8] {{
  %q = f32[8]{{0}} parameter(0)
  ROOT %r = f32[8]{{0}} sine(%q), {cycles(10_000)}
}}

%fused (q: f32[8]) -> f32[8] {{
  %q = f32[8]{{0}} parameter(0)
  ROOT %r = f32[8]{{0}} fusion(%q), kind=kLoop, calls=%inner, {cycles(5_000)}
}}

%add (a: f32[], b: f32[]) -> f32[] {{
  %a = f32[] parameter(0)
  %b = f32[] parameter(1)
  ROOT %s = f32[] add(%a, %b), {cycles(9_000)}
}}
"""
    entry = f"""  %f = f32[8]{{0}} fusion(%p), kind=kLoop, calls=%fused, {cycles(30)}
  ROOT %s = f32[]{{:T(128)}} reduce(%f, %p), dimensions={{0}}, to_apply=%add, {cycles(4)}"""
    assert estimate(program(entry, fused), KILOHERTZ).milliseconds == 34


def branches(about: dict[str, str]) -> str:
    """Computations of one sine, each with what stands after it."""
    return "".join(
        f"""
%branch_{name} (q: f32[8]) -> f32[8] {{
  %q = f32[8]{{0}} parameter(0)
  ROOT %in_{name} = f32[8]{{0}} sine(%q), {after}
}}
"""
        for name, after in about.items()
    )


def test_called_computations_count_and_of_branches_the_dearest():
    called = branches({"a": cycles(20), "b": cycles(300), "called": cycles(7)})
    entry = """  %k = s32[]{:T(128)} bitcast(%p)
  %c = f32[8]{0} conditional(%k, %p, %p), branch_computations={%branch_a, %branch_b}
  %d = f32[8]{0} conditional(%k, %p, %p), true_computation=%branch_a, false_computation=%branch_b
  ROOT %e = f32[8]{0} call(%d), to_apply=%branch_called"""
    assert estimate(program(entry, called), KILOHERTZ).milliseconds == 300 + 300 + 7


def test_asynchronous_pairs_are_one_instruction_without_an_estimate():
    entry = f"""  %s = (f32[64]{{0:T(8,128)}}, f32[64]{{0:T(8,128)S(1)}}, u32[]{{:S(2)}}) copy-start(%p)
  %work = f32[8]{{0}} sine(%p), {cycles(3)}
  %d = f32[64]{{0:T(8,128)S(1)}} copy-done(%s)
  %t = ((f32[64]{{0:T(8,128)}}), f32[16]{{0:T(8,128)S(1)}}, s32[]{{:S(2)}}) slice-start(%d), slice={{[0:16]}}
  ROOT %u = f32[16]{{0:T(8,128)S(1)}} slice-done(%t)"""
    found = estimate(program(entry), KILOHERTZ)
    assert found.milliseconds == 3
    assert found.missing == {"copy-start": Missing(1, 1, 256), "slice-start": Missing(1, 1, 64)}
    assert found.asynchronous_bytes == 320
    assert (found.executions, found.missing_executions) == (3, 2 / 3)


def test_what_has_no_estimate_is_counted_by_kind():
    fused = """
%table (q: f32[8]) -> f32[8] {
  %q = f32[8]{0} parameter(0)
  ROOT %r = f32[8]{0} gather(%q, %q), offset_dims={1}
}
"""
    body = """  %x.1 = f32[8]{0} fusion(%x), kind=kCustom, calls=%table
  %zero = f32[8]{0} exponential(%x), backend_config={"window_config":{"estimated_cycles":"0"}}"""
    computations, caller = loop("scan", body, limit=6)
    entry = f"""{caller}
  %new = f32[1000]{{0}} custom-call(), custom_call_target="AllocateBuffer"
  %k = f32[8]{{0}} custom-call(%p), custom_call_target="TopK"
  ROOT %a = f32[8]{{0}} sine(%p), {cycles(1000)}"""
    found = estimate(program(entry, fused + computations), KILOHERTZ)
    assert found.missing["fusion with gather"] == Missing(1, 6, 6 * 32)
    assert found.missing["exponential"] == Missing(1, 6, 6 * 32)  # no cycles at all are no estimate
    assert found.missing["custom-call TopK"] == Missing(1, 1, 32)
    assert "custom-call AllocateBuffer" not in found.missing
    assert found.milliseconds == 1000


def test_parts_are_those_of_the_innermost_scope():
    paths = {
        "vmap(jvp(encoder))/while/body/closed_call/dot_general": "encoder",
        "vmap(transpose(jvp(decoder)))/while/body/checkpoint/rematted_computation/mul": "decoder",
        "vmap(jvp(decoder))/vmap(jvp(head_loss))/reduce_sum": "head and loss",
        "vmap(jvp())/eeg_encoder/encoder/dot_general": "encoder",
        "transpose(jvp(eeg_encoder))/dot_general": "EEG encoder",
        "vmap(optimizer)/mul;jit(step)/vmap()/add": "optimizer",
        "embeddings/gather": "embeddings",
        "while/body/search/top_k": "search",
        "jit(encoder_decoder)/mul": OTHER,
        "jit(search)/mul": OTHER,
        "vmap(jvp())/my.encoder/mul": OTHER,
        "mul": OTHER,
    }
    entry = "\n".join(f"  %i{n} = f32[8]{{0}} sine(%p), {scope(path)}, {cycles(2**n)}" for n, path in enumerate(paths))
    found = estimate(program(entry), KILOHERTZ)
    assert {cost.op_name.removeprefix("jit(step)/"): cost.part for cost in found.costs} == paths
    assert list(found.parts.values()) == sorted(found.parts.values(), reverse=True)
    assert sum(found.parts.values()) == found.milliseconds == 2 ** len(paths) - 1


def test_what_the_compiler_made_is_its_users_or_its_loops():
    body = f"""  %made = f32[8]{{0}} sine(%x), {cycles(4)}
  %x.1 = f32[8]{{0}} negate(%x), {cycles(8)}"""
    computations, caller = loop("scan", body, limit=1)
    caller += f", {scope('transpose(jvp(encoder))/while')}"
    entry = f"""{caller}
  %made = f32[8]{{0}} sine(%p), {cycles(1)}
  %tuple = (f32[8]{{0}}, f32[8]{{0}}) tuple(%made, %p)
  %used = f32[8]{{0}} get-tuple-element(%tuple), index=0
  ROOT %head = f32[8]{{0}} negate(%used), {scope("head_loss/neg")}, {cycles(2)}"""
    assert estimate(program(entry, computations), KILOHERTZ).parts == {"encoder": 12, "head and loss": 3}


def test_moving_filling_and_exchanging_are_parts_of_their_own():
    inside = scope("jvp(encoder)/mul")
    fused = """
%moving (q: f32[8], i: s32[]) -> f32[8] {
  %q = f32[8]{0} parameter(0)
  %i = s32[] parameter(1)
  %j = s32[] add(%i, %i)
  %s = f32[8]{0} dynamic-slice(%q, %j), dynamic_slice_sizes={8}
  ROOT %r = f32[8]{0} transpose(%s), dimensions={0}
}

%working (q: f32[8], i: s32[]) -> f32[8] {
  %q = f32[8]{0} parameter(0)
  %i = s32[] parameter(1)
  %s = f32[8]{0} dynamic-slice(%q, %i), dynamic_slice_sizes={8}
  ROOT %r = f32[8]{0} multiply(%s, %s)
}
"""
    entry = f"""  %zero = f32[]{{:T(128)}} constant(0)
  %fill = f32[8]{{0}} broadcast(%zero), dimensions={{}}, {inside}, {cycles(1)}
  %copy = f32[8]{{0:T(1,128)}} copy(%p), {inside}, {cycles(2)}
  %moved = f32[8]{{0}} fusion(%p, %zero), kind=kLoop, calls=%moving, {inside}, {cycles(4)}
  %worked = f32[8]{{0}} fusion(%p, %zero), kind=kLoop, calls=%working, {inside}, {cycles(8)}
  ROOT %sum = f32[8]{{0}} all-reduce(%p), replica_groups={{}}, to_apply=%moving, {inside}"""
    found = estimate(program(entry, fused), KILOHERTZ)
    assert found.parts == {"encoder": 8, COPIES: 6, FILLS: 1}
    assert found.missing == {"all-reduce": Missing(1, 1, 32)}
    assert not found.parts.get(COMMUNICATION)
    timed = estimate(program(entry + f", {cycles(16)}", fused), KILOHERTZ)
    assert timed.parts[COMMUNICATION] == 16


def test_parts_by_name_of_all_that_runs():
    """For profiles, of any compiler: both branches, loops of any length, no instruction that only holds others."""
    both = branches({name: scope(f"optimizer/{name}") for name in "ab"})
    computations, caller = loop("scan", f"  %x.1 = f32[8]{{0}} negate(%x), {scope('while/body/decoder/neg')}", None)
    entry = f"""{caller}
  %k = s32[]{{:T(128)}} bitcast(%p)
  %copy = f32[8]{{0}} copy(%p)
  ROOT %c = f32[8]{{0}} conditional(%k, %p, %p), branch_computations={{%branch_a, %branch_b}}"""
    found = parts_of(program(entry, both + computations))
    assert found.pop("copied") == COPIES
    assert found.pop("next") == OTHER
    assert found == {"x.1": "decoder", "copy": COPIES, "in_a": "optimizer", "in_b": "optimizer"}


def test_lines_with_everything_in_them():
    line = (
        "ROOT %while.3 = (s32[]{:T(128)}, /*index=1*/bf16[2,3]{1,0:T(8,128)(2,1)S(1)}) while(%tuple.1), "
        'condition=%wide.cond.1, body=%wide.body, metadata={op_name="jit(f)/while" stack_frame_id=1}'
    )
    found = parse_instruction(line)
    assert (found.name, found.op, found.operands, found.root) == ("while.3", "while", ("tuple.1",), True)
    assert found.called == {"condition": ("wide.cond.1",), "body": ("wide.body",)}
    assert found.arrays == [("s32", 1), ("bf16", 6)]
    assert (found.bytes(), found.bytes(largest_only=True), found.op_name) == (16, 12, "jit(f)/while")
    assert parse_instruction("}") is None
    assert parse_instruction("not an instruction") is None
