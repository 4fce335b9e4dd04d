"""Profiles by part of the model, of each platform's form."""

from types import SimpleNamespace

import pytest
from timing import by_part, profile_lines

HLO = """HloModule jit_step, is_scheduled=true

%body (b: f32[8]) -> f32[8] {
  %b = f32[8]{0} parameter(0)
  ROOT %fusion.7 = f32[8]{0} sine(%b), metadata={op_name="jit(step)/jvp(encoder)/while/body/sin"}
}

%condition (c: f32[8]) -> pred[] {
  %c = f32[8]{0} parameter(0)
  ROOT %unknown = pred[] is-finite(%c)
}

ENTRY %main (p: f32[8]) -> f32[8] {
  %p = f32[8]{0} parameter(0)
  %while.1 = f32[8]{0} while(%p), condition=%condition, body=%body
  ROOT %dot.2 = f32[8]{0} dot(%while.1, %p), metadata={op_name="jit(step)/head_loss/dot"}
}
"""


def event(name: str, milliseconds: float, **stats: str) -> SimpleNamespace:
    return SimpleNamespace(name=name, duration_ns=1e6 * milliseconds, stats=list(stats.items()))


def data(**lines: list) -> SimpleNamespace:
    """A profile; `plane__line=[events]`."""
    planes = [
        SimpleNamespace(name=name.split("__")[0], lines=[SimpleNamespace(name=name.split("__")[1], events=events)])
        for name, events in lines.items()
    ]
    return SimpleNamespace(planes=planes)


def named(op: str, milliseconds: float, module: str = "jit_step") -> SimpleNamespace:
    return event("a_kernel", milliseconds, hlo_op=op, hlo_module=module)


@pytest.mark.parametrize("plane", ["/host:CPU__tf_XLAEigen/1", "/device:GPU:0__Stream #13(Compute)"])
def test_kernels_that_name_their_instruction(plane):
    events = [named("fusion.7", 2.0), named("fusion.7", 3.0), named("dot.2", 8.0), named("dot.2", 64.0, "jit_other")]
    events += [named("while.1", 5.5), named("made_while_running", 1.0), event("ThunkExecutor::Execute", 99.0)]
    assert by_part(data(**{plane: events}), HLO) == {"head and loss": 8.0, "encoder": 5.0, "other": 1.0}


def test_a_tpu_names_its_events_as_the_text_does():
    operations = [event("%fusion.7 = f32[8]{0} sine(%b)", 2.0), event("dot.2", 8.0), event("%while.1 = f32[8]", 2.5)]
    seen = data(**{"/device:TPU:0__XLA Ops": operations, "/device:TPU:0__XLA Modules": [event("jit_step(123)", 99.0)]})
    assert by_part(seen, HLO) == {"head and loss": 8.0, "encoder": 2.0}


def test_measured_beside_estimated():
    row = {"profile": "here.pb", "measured_ms_by_part": {"encoder": 300.0, "head and loss": 100.0}}
    alone = profile_lines("step", {**row, "estimated_ms_by_part": None})
    assert alone[0] == "step: 400.0 ms in operations, measured; here.pb"
    assert alone[1].split() == ["300.0", "ms", "75.0%", "encoder"]
    both = profile_lines("step", {**row, "estimated_ms_by_part": {"encoder": 250.0, "optimizer": 5.0}})
    assert [line.split()[3:] for line in both[1:]] == [
        ["estimated", "250.0", "ms", "encoder"],
        ["estimated", "0.0", "ms", "head", "and", "loss"],
        ["estimated", "5.0", "ms", "optimizer"],
    ]
