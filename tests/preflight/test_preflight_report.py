"""What the command says: topologies and chips, verdicts, remedies, and programs lowered for GPUs."""

import dataclasses
import json
import os
import re
from pathlib import Path

import jax
import pytest
from tiny_run import as_flag, tiny_settings

from eeg2text_jax.base.chips.hlo_clock import COPIES, Cost, Estimate, Missing
from eeg2text_jax.base.chips.hlo_text import Collective
from eeg2text_jax.base.devices.mesh import CHIPS, chip_of_device, make_mesh
from eeg2text_jax.base.errors import UserError
from eeg2text_jax.commands.preflight.compiling import (
    Compiled,
    compile_program,
    optimized_hlo,
    parse_topology,
    refused_bytes,
)
from eeg2text_jax.commands.preflight.estimate import (
    LargestBatch,
    Loop,
    ProgramReport,
    Report,
    Task,
    search_task,
    training_task,
)
from eeg2text_jax.commands.preflight.printing import to_json, to_text
from eeg2text_jax.commands.preflight.programs import Program, make_outline
from eeg2text_jax.models.functional import search_flops, step_flops, training_flops
from eeg2text_jax.training.configuration import parse_config
from eeg2text_jax.training.study import placement_of

ROOT = Path(__file__).parents[2]
GIB = 2**30
WITHIN = Collective("all-reduce", ("data",), 3 * 2**20, 2, 4.5 * 2**20, asynchronous=False)
ACROSS = Collective("all-gather", ("arm",), 100, 1, 50, asynchronous=False)


COST = Cost("fusion.1", "f32[8]", "jit(step)/encoder/dot", "encoder", 12, 90.0)
SPENT = Estimate((COST, Cost("copy.1", "f32[8]", "", COPIES, 1, 10.0)), {"copy-start": Missing(2, 3, GIB)}, 16)
BITS = {"rng-bit-generator": Missing(2, 24, GIB), "fusion with rng-bit-generator": Missing(1, 12, GIB)}
BITS |= {"custom-call TopK": Missing(1, 56, 819 * 10**6), "gather": Missing(1, 1, 8)}
TURN = Estimate((Cost("fusion.2", "f32[8]", "", "decoder", 1, 2.0),), {}, 1)


def compiled(total: int, *collectives: Collective, estimate: Estimate | None = None) -> Compiled:
    return Compiled(total, total // 2, total // 4, total // 8, total // 8, collectives, 1.0, estimate)


def task(name: str, flops: float) -> Task:
    return Task(name, 32, (56, 56), "", None, flops, 32 * 56)


def report(train: Compiled, largest: LargestBatch | None = None) -> Report:
    programs = [
        ProgramReport(task("training step", 197e12), train, 5 * GIB, 1.0, 0.1),
        ProgramReport(task("beam search", 1e12), compiled(GIB), GIB, 0.1, 0.1),
    ]
    largest = largest or LargestBatch(64, True, 64, {32: GIB, 64: 2 * GIB})
    place = tiny_settings(), parse_topology("v5e:2x4"), {"arm": 2, "data": 4}, ["eeg/0", "noise/0"]
    return Report(*place, (56, 56), programs, largest, "least")


def test_a_program_that_fits():
    good = report(compiled(8 * GIB, WITHIN))
    text = to_text(good)
    assert good.good
    assert "training step, batch 32, 56 words, 56 tokens: 8.00 GiB of 15.52 GiB a chip, fits" in text
    assert "data 6.0 MiB; across arms: none" in text
    assert "modelled, not measured: 197.00 TFLOP a device, at least 1000.0 ms" in text
    assert "64, confirmed by compiling it (32: 1.00 GiB, 64: 2.00 GiB)" in text
    assert "compiled with least effort, not run" in text
    assert "no times: the compiler's estimates need --effort=full, which compiles the program as a run does" in text
    assert "not measured: 100.0 ms" not in text


def timed(arms: str = "") -> Report:
    """Both programs with estimates, and with `arms` the training step both ways."""
    train = dataclasses.replace(task("training step", 19.7e12), arms=arms)
    search = dataclasses.replace(task("beam search", 1e12), tokens=32 * 55, loops=(Loop(55, 56, 19.7e9),))
    programs = [
        ProgramReport(train, compiled(8 * GIB, estimate=SPENT), 5 * GIB, 0.02, 0.1),
        ProgramReport(search, compiled(GIB, estimate=dataclasses.replace(SPENT, turns=(TURN,))), GIB, 0.005, 0.1),
    ]
    if arms:
        other = dataclasses.replace(train, arms="map")
        programs.append(ProgramReport(other, too_large(), 5 * GIB, 0.02, 0.1))
    good = report(compiled(8 * GIB))
    return dataclasses.replace(good, programs=programs, effort="full")


def too_large() -> Compiled:
    return dataclasses.replace(compiled(30 * GIB), arguments=None, temporaries=None, collectives=None)


def test_estimates_with_full_effort():
    text = to_text(timed())
    assert "estimated by the compiler, not measured: 100.0 ms, 20.0% of the chip's peak, 17920 tokens/s" in text
    assert "        90.0 ms  90.0%  encoder\n        10.0 ms  10.0%  copies and layout changes\n" in text
    assert "without an estimate: 2 instructions, 19% of the executions (copy-start 2)" in text
    assert "copies beside the computation move 1.00 GiB, 1.31 ms at 819 GB/s" in text
    assert "one of its 55 steps: 2.000 ms, 5.0% of the chip's peak" in text
    assert "no times" not in text
    assert "the arms of a device" not in text


def test_versions_and_what_has_no_time_are_beside_every_figure():
    """The generator's bits, TopK and sorts have no cycles: the least time of their bytes is beside the estimate."""
    both = timed()
    train = both.programs[0]
    spent = dataclasses.replace(train.compiled.estimate, missing={**SPENT.missing, **BITS})
    timed_bits = dataclasses.replace(train, compiled=dataclasses.replace(train.compiled, estimate=spent))
    told = dataclasses.replace(both, programs=[timed_bits, both.programs[1]])
    text, content = to_text(told), to_json(told)
    assert f"figures are of jax {jax.__version__}, jaxlib " in text
    assert content["versions"]["jax"] == jax.__version__
    assert "not in the time: random bits, 36 executions that write 2.00 GiB, at least 2.62 ms at 819 GB/s" in text
    assert "not in the time: TopK, 56 executions that write 0.76 GiB, at least 1.00 ms" in text
    assert list(content["programs"][0]["estimated"]["without_estimate"]["uncounted"]) == ["random bits", "TopK"]
    assert "not in the time" not in to_text(both)


def test_steps_of_a_cache_that_grows():
    """Two sizes, of which the second waits for memory; a loop for half of the sentences takes no step."""
    good = timed()
    waits = dataclasses.replace(TURN, moved=2_457_000_000, waiting=1.0)
    search = good.programs[1]
    spent = dataclasses.replace(search.estimate, turns=(TURN, waits, TURN))
    loops = (Loop(24, 25, 19.7e9), Loop(8, 33, 19.7e9), Loop(0, 33, 19.7e9))
    grown = dataclasses.replace(
        search,
        task=dataclasses.replace(search.task, loops=loops),
        compiled=dataclasses.replace(search.compiled, estimate=spent),
    )
    both = dataclasses.replace(good, programs=[good.programs[0], grown])
    text = to_text(both)
    assert "one of its 32 steps: 2.250 ms on average, 4.4% of the chip's peak" in text
    assert "24 steps with 25 positions in the cache: 2.000 ms each, the larger of 2.000 (estimate) and 0.000 (" in text
    assert (
        "8 steps with 33 positions in the cache: 3.000 ms each, the larger of 2.000 (estimate) and 3.000 (2.46" in text
    )
    step = to_json(both)["programs"][1]["estimated"]["step"]
    assert (step["milliseconds"], step["steps"], step["share_of_peak"]) == (2.25, 32, pytest.approx(0.1 / 2.25))
    sizes = [(size["positions"], size["steps"], size["milliseconds"]) for size in step["sizes"]]
    assert sizes == [(25, 24, 2.0), (33, 8, 3.0)]


def test_estimates_as_json():
    train, search = to_json(timed())["programs"]
    spent = train["estimated"]
    assert spent["what_it_is"] == "the compiler's model of the time, not a measurement"
    assert (spent["milliseconds"], spent["share_of_peak"]) == (100.0, pytest.approx(0.2))
    assert spent["tokens_per_second"] == pytest.approx(17920)
    assert spent["milliseconds_by_part"] == {"encoder": 90.0, "copies and layout changes": 10.0}
    assert spent["without_estimate"]["by_kind"] == {"copy-start": {"instructions": 2, "executions": 3, "bytes": GIB}}
    assert spent["dearest_instructions"][0]["times"] == 12
    assert "step" not in spent
    assert (search["estimated"]["step"]["milliseconds"], search["estimated"]["step"]["steps"]) == (2.0, 55)
    assert search["estimated"]["step"]["share_of_peak"] == pytest.approx(0.05)
    assert to_json(report(compiled(GIB)))["programs"][0]["estimated"] is None


def test_both_ways_of_a_devices_arms():
    """The way that the configuration does not take may be refused: it is shown, and is no failure."""
    both = dataclasses.replace(timed("vmap"), config=tiny_settings(parallel__arms="vmap"))
    text = to_text(both)
    assert "   56 words,  56 tokens:    100.0 ms,   8.00 GiB  side by side (parallel.arms=vmap)" in text
    assert "   56 words,  56 tokens: refused,  30.00 GiB  one after the other (parallel.arms=map)" in text
    assert both.good
    taken = dataclasses.replace(both, config=tiny_settings(parallel__arms="map"))
    assert not taken.good


def test_an_effort_that_this_jax_does_not_know(monkeypatch):
    """Newer ones renamed the option: the program is compiled all the same, and the report says how."""
    mesh = make_mesh(1, 1)
    program = Program(jax.jit(lambda x: x + 1), (jax.ShapeDtypeStruct((3,), "float32"),))
    assert not compile_program(program, mesh, "full").effort_unknown
    monkeypatch.setattr("eeg2text_jax.commands.preflight.compiling.EFFORT_OPTION", "no_such_effort")
    found = compile_program(program, mesh, "full")
    assert found.effort_unknown
    text = to_text(report(dataclasses.replace(compiled(8 * GIB), effort_unknown=True)))
    assert "this JAX knows no compiler option exec_time_optimization_effort: compiled with its default effort" in text


def test_a_loop_of_unknown_length_has_no_estimate():
    mesh, shape = make_mesh(1, 1), jax.ShapeDtypeStruct((3,), "float32")
    program = Program(jax.jit(lambda x: jax.lax.while_loop(lambda x: x.sum() < 9, lambda x: x * 2, x)), (shape,))
    assert compile_program(program, mesh, "full").estimate is None
    with pytest.raises(UserError, match="time cannot be estimated: the trip count of the loop"):
        compile_program(program, mesh, "full", CHIPS["v5e"])
    told = compile_program(program, mesh, "full", CHIPS["v5e"], unknown_loops=(5,))
    assert told.estimate is None  # a CPU's compiler writes no cycles
    nothing = dataclasses.replace(report(told), effort="full")
    assert "no estimate of the time: the compiler has none for this chip" in to_text(nothing)


def test_a_program_that_jax_cannot_read_is_read_from_the_dump(tmp_path):
    class Unreadable:
        def as_text(self) -> str:
            raise jax.errors.JaxRuntimeError("INTERNAL: async-update instruction should have 1 operands but sees 3")

    with pytest.raises(jax.errors.JaxRuntimeError, match="async-update"):
        optimized_hlo(Unreadable(), tmp_path)
    for second, name in enumerate(["module_0002.constant", "module_0001.train"]):
        (tmp_path / f"{name}.after_codegen.txt").write_text(name)
        os.utime(tmp_path / f"{name}.after_codegen.txt", (second, second))
    (tmp_path / "module_0001.train.before_optimizations.txt").write_text("later")
    assert optimized_hlo(Unreadable(), tmp_path) == "module_0001.train"


def test_one_that_does_not_says_what_to_change():
    bad = report(compiled(20 * GIB), LargestBatch(16, True, 16, {}))
    text = to_text(bad)
    assert not bad.good
    assert "DOES NOT FIT" in text
    for remedy in ("batch.size=16 fits", "model.remat=True", "model.dtype=bfloat16", "parallel.fsdp=True"):
        assert remedy in text


def test_a_frozen_model_that_does_not_fit_may_be_narrower_and_divided():
    bad = report(compiled(20 * GIB))
    bad.programs[1] = dataclasses.replace(bad.programs[1], compiled=compiled(20 * GIB))
    frozen = tiny_settings(**{"optim.trainable": "bridge", "model.backbone": "llama"})
    narrower, divided = "model.frozen_dtype=int8", "decode.tensor_parallel=True"
    for config, int8, tensor_parallel in [
        (bad.config, 0, 0),
        (frozen, 2, 1),
        (tiny_settings(**{"optim.trainable": "bridge"}), 0, 0),
    ]:
        text = to_text(dataclasses.replace(bad, config=config))
        assert (text.count(narrower), text.count(divided)) == (int8, tensor_parallel)


def test_a_collective_across_arms_is_flagged():
    bad = report(compiled(8 * GIB, WITHIN, ACROSS))
    assert not bad.good
    assert "across arms: 1 <-- arms must not communicate\n    all-gather of 100 bytes" in to_text(bad)
    assert to_json(bad)["programs"][0]["compiled"]["collectives_across_arms"] == ["all-gather of 100 bytes"]


def test_what_was_refused_or_not_confirmed_is_called_so():
    text = to_text(report(too_large(), LargestBatch(64, False, 96, {64: GIB})))
    assert "refused by the compiler: too little memory" in text
    assert "up to 96 may fit, but 96 was NOT compiled" in text


@pytest.mark.parametrize(
    ("message", "bytes_"),
    [
        ("RESOURCE_EXHAUSTED: Ran out of memory in memory space hbm. Used 20.50G of 15.75G hbm. Exceeded", 20.5 * GIB),
        ("the total memory required for HLO temporaries (20.72G) exceeds available HBM (15.75G).", 20.72 * GIB + 7),
        ("INTERNAL: something else", None),
    ],
)
def test_memory_of_refused_programs(message, bytes_):
    found = refused_bytes(message, arguments=7)
    assert found == (None if bytes_ is None else int(bytes_))


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ("--topology=v5:2x4", "there is no chip 'v5'; did you mean 'v5e' or 'v5p'?"),
        ("--topology=a100:1", "there is no chip 'a100'; did you mean 'a100-80gb' or 'a100-40gb'?"),
        ("--topology=teapot:2", "there is no chip 'teapot'; there are v4, v5e"),
        ("--topology=h100", "expected a shape after the chip, as in 'h100:8'"),
        ("--topology=v5e:2x2,h100:8", "h100:8 is no TPU"),
        ("--topology=v5e:0x4", "expected a shape"),
        ("--topology=h100:2x4", "expected a shape after the chip, as in 'h100:8'"),
        ("--topology=v5e:32x32", "v5e:32x32': has 1,024 chips, but a v5e pod has"),
        ("--topology=v6e:16x32", "v6e:16x32': has 512 chips, but a v6e pod has"),
        ("--topology=v4:16x16x32", "v4:16x16x32': has 8,192 chips, but a v4 pod has"),
        ("--topology=v5e:2x4 --effort=most", "--effort=most: expected "),
        ("--topology=v5e:2x4 --largest=perhaps", "--largest=perhaps: expected "),
        ("--topology=v5e:2x4 --config.batch.sise=3", "did you mean 'batch.size'?"),
    ],
)
def test_wrong_options(options, message, refused):
    assert message in refused(["preflight", "--config=configs/demo.py", *options.split()])


def test_libtpu_that_is_missing(monkeypatch, refused):
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    said = refused(["preflight", as_flag(parallel__mesh=(0, 0)), "--topology=v5e:2x4"])
    assert "needs libtpu: pip install 'eeg2text_jax[preflight]'" in said


@pytest.mark.parametrize(
    ("kind", "chip"),
    [
        ("TPU v5 lite", "v5e"),
        ("TPU v5", "v5p"),
        ("TPU v4", "v4"),
        ("TPU v6 lite", "v6e"),
        ("NVIDIA A100-SXM4-80GB", "a100-80gb"),
        ("NVIDIA H100 80GB HBM3", "h100"),
        ("NVIDIA L4", "l4"),
        ("NVIDIA L40S", None),
        ("cpu", None),
        ("NVIDIA GeForce RTX 3060", None),
    ],
)
def test_chips_by_their_kind(kind, chip):
    assert chip_of_device(kind) is (CHIPS[chip] if chip else None)


def test_programs_are_lowered_for_gpus_that_are_not_there(tmp_path, monkeypatch, printed_by):
    """Whatever is here: on a single CPU device, `auto` would compute the arms one after the other."""
    here, out = jax.devices()[:1], tmp_path / "report.json"
    monkeypatch.setattr("jax.devices", lambda *_: here)
    flag = as_flag(parallel__mesh=(0, 0), parallel__arms="auto")
    text = printed_by(["preflight", flag, "--topology=h100:4", f"--json={out}"])
    assert "lowered, neither compiled nor run" in text
    assert "need XLA's compiler for GPUs" in text
    told = json.loads(out.read_text())
    assert told["mesh"] == {"arm": 2, "data": 2}
    assert told["largest_batch"] is told["effort"] is None
    assert [program["compiled"] for program in told["programs"]] == [None, None]
    assert all(program["argument_bytes"] > 0 for program in told["programs"])


def test_arguments_are_counted_per_device():
    """Arms divide the state; four devices along the batch and FSDP leave a quarter of what is large."""
    config = tiny_settings(parallel__mesh=(0, 0), batch__size=32)
    one, eight = ((make_outline(config), placement_of(config, 2, n)) for n in (1, 8))
    whole, part = (outline.training(placement, 32).argument_bytes() for outline, placement in (one, eight))
    assert 0.5 * whole > part > 0.4 * whole


def test_operations_are_divided_by_the_devices_and_those_of_a_step_by_the_devices_of_a_batch():
    """Four arms on two by four devices; after a compaction one row of a device is left, after two none."""
    changes = {"parallel__mesh": (2, 4), "grid__seeds": (0, 1), "decode__compactions": 2, "decode__max_length": 70}
    config = tiny_settings(**changes, batch__size=32, batch__buckets=((10, 12), (20, 56)))
    outline, placement = make_outline(config), placement_of(config, 4, jax.devices())
    model = outline.model
    train, small = training_task(outline, placement), training_task(outline, placement, 16, (10, 12))
    assert (train.batch, train.bucket, train.tokens) == (32, (20, 56), 32 * 56 * 4)
    assert train.flops == pytest.approx(training_flops(model, 32, 20, 56) * 4 / 8)
    assert (small.batch, small.bucket, small.tokens) == (16, (10, 12), 16 * 12 * 4)
    assert small.flops == pytest.approx(training_flops(model, 16, 10, 12) * 4 / 8)
    assert train.arms
    assert not training_task(outline, placement_of(config.changed({"parallel.mesh": (4, 2)}), 4, jax.devices())).arms
    search, sizes = search_task(outline, placement), model.cache_lengths(2, 70, "cpu")
    assert len(sizes) > 1
    assert (search.batch, search.bucket, search.tokens) == (8, (20, 70), 8 * 69 * 4)
    assert search.flops == pytest.approx(search_flops(model, 8, 20, 70, 2, sizes) * 4 / 8)
    assert [loop.positions for loop in search.loops] == [*sizes, 70]
    assert sum(loop.steps for loop in search.loops) == 69
    assert search.loops[-1].steps == 0
    for loop in search.loops:
        assert loop.flops == pytest.approx(step_flops(model, 8, 20, loop.positions, 2) / 4)


def test_the_command_of_the_table_of_estimates_is_of_its_table():
    """One arm on one chip, bfloat16, 56 words and 56 tokens, with times."""
    (command,) = re.findall(r"`eeg2text preflight ([^`]*--effort=full[^`]*)`", (ROOT / "docs/speed.md").read_text())
    options = ("topology", "effort", "json")
    parsed = parse_config(command.split(), "preflight", options=options)
    assert (parsed.options["topology"], parsed.options["effort"]) == ("v5e:1x1", "full")
    assert parsed.config.model.dtype == "bfloat16"
    assert parsed.config.batch.size == 32
    outline = make_outline(parsed.settings)
    assert (len(outline.arms), outline.buckets) == (1, [(56, 56)])
