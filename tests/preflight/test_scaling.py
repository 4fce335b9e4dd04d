"""The table of slices: which are compiled, times with exposed communication, the recommendation, and what is kept."""

import time
from concurrent.futures import ThreadPoolExecutor
from types import SimpleNamespace

import pytest
from etils import epath
from real_compiler import preflight
from tiny_run import as_flag, tiny_settings

from eeg2text_jax.base.chips.hlo_text import Collective
from eeg2text_jax.base.errors import UserError
from eeg2text_jax.commands.preflight import scaling
from eeg2text_jax.commands.preflight.compiling import Compiled
from eeg2text_jax.commands.preflight.scaling import Row, Scaling, exposed_communication, slices, to_text

GIB = 2**30


def row(name: str, data: int, milliseconds: float | None, **changes: object) -> Row:
    fields = {"mesh": (2, data), "batch": 32, "memory": 8 * GIB, "usable": 15 * GIB, "traffic": GIB, "exposed": 1.0}
    peak = None if milliseconds is None else 10 / milliseconds / data
    fields |= {"topology": name, "milliseconds": milliseconds, "hidden": 0.75, "share_of_peak": peak}
    return Row(**(fields | changes))


def table(*rows: Row, **refused: str) -> Scaling:
    return Scaling(tiny_settings(train__steps=1000, batch__size=32), 2, (56, 56), list(rows), refused)


def test_which_slices():
    assert [topology.name for topology in slices("v5e")][::7] == ["v5e:1x1", "v5e:16x16"]
    assert [topology.name for topology in slices("v4")][-1] == "v4:4x8x8"  # 256 chips
    assert [topology.name for topology in slices("v6e:2x4,V5E:2x2,v6e:2x4")] == ["v6e:2x4", "v5e:2x2"]


def collective(received: float, *, asynchronous: bool, times: int = 1) -> Collective:
    return Collective("all-gather", ("data",), 0, times, received, asynchronous)


@pytest.mark.parametrize(
    ("computing", "exposed", "hidden"), [(100.0, 10.0, 0.75), (30.0, 10.0, 0.75), (20.0, 20.0, 0.5), (0.0, 40.0, 0.0)]
)
def test_exposed_communication(computing, exposed, hidden):
    """10 ms apart from the computation are never hidden, 3 x 10 ms beside it as long as it lasts."""
    both = (collective(1e9, asynchronous=False), collective(1e9, asynchronous=True, times=3))
    compiled = Compiled(1, 1, 0, 0, 0, both, 1.0)
    assert exposed_communication(compiled, computing, 100e9) == pytest.approx((exposed, hidden))
    assert exposed_communication(Compiled(1, 1, 0, 0, 0, (), 1.0), computing, 100e9) == (0.0, 1.0)


def test_figures_of_a_row():
    one = row("v5e:2x4", 4, 40.0)
    assert (one.chips, one.rows, one.samples_per_second) == (8, 8, 800.0)
    assert one.chip_hours(800 * 3600) == 8.0


def test_the_recommendation():
    """20 ms on 4 chips are 80 chip-ms, 11 ms on 8 are 88, 9 ms on 16 are 144."""
    rows = row("a", 2, 20.0), row("b", 4, 11.0), row("c", 8, 9.0)
    assert table(*rows).recommended == rows[1]
    assert table(rows[0], row("b", 4, 13.0), rows[2]).recommended == rows[0]  # 104 chip-ms are 1.3 times 80
    full = row("b", 4, 11.0, memory=16 * GIB)
    assert table(rows[0], full, rows[2]).recommended == rows[0]
    assert table(full, row("c", 8, None)).recommended is None


def test_the_text():
    refused = {"v5e:8x8": "batch.size = 32 does not divide among 64 devices"}
    rows = row("v5e:1x1", 1, None, mesh=(1, 1), memory=29 * GIB), row("v5e:2x2", 2, 20.0), row("v5e:4x4", 8, 12.0)
    text = to_text(table(*rows, **refused))
    lines = [line.split() for line in text.splitlines()]
    assert ["v5e:1x1", "1", "1,1", "32", "32", "29.0", "GiB", "no", "fit"] in lines
    figures = ["v5e:2x2", "4", "2,2", "32", "16", "8.0", "GiB", "20.0", "ms", "1.0", "ms", "1.00", "GiB", "75%", "25%"]
    assert [*figures, "1,600", "0.7"] in lines
    assert "v5e:8x8: left out, batch.size = 32 does not divide among 64 devices" in text
    assert "too few rows a chip (share of peak below 50% of the best): v5e:4x4" in text
    assert "recommended: v5e:2x2, parallel.mesh=2,2, batch.size=32" in text
    assert "32,000 samples take 0.02 chip-hours" in text
    assert "no slice of the table fits" in to_text(table(rows[0]))


@pytest.fixture
def compiling(monkeypatch):
    """Slices that were compiled, with the global batch; nothing is compiled."""
    compiled = []

    def fake(outline, topology, batch):
        compiled.append((topology.name, batch))
        return row(topology.name, 2, 20.0, batch=batch)

    monkeypatch.setattr(scaling, "compiled_row", fake)
    monkeypatch.setattr(scaling, "require_libtpu", lambda: None)
    return compiled


CONFIG = {"batch__size": 32, "parallel__mesh": (0, 0)}


def test_strong_and_weak_scaling(compiling):
    wanted = slices("v5e:1x1,v5e:2x4,v5e:8x16")
    found = scaling.scaling(tiny_settings(**CONFIG), wanted, say=lambda _: None)
    assert sorted(compiling) == [("v5e:1x1", 32), ("v5e:2x4", 32)]
    assert "does not divide among 64 devices" in found.refused["v5e:8x16"]  # two arms
    compiling.clear()
    assert not scaling.scaling(tiny_settings(**CONFIG), wanted, 8, say=lambda _: None).refused
    assert sorted(compiling) == [("v5e:1x1", 8), ("v5e:2x4", 32), ("v5e:8x16", 512)]


@pytest.mark.parametrize(("memory", "status"), [(8 * GIB, 0), (16 * GIB, 1)])
def test_the_status_says_whether_a_slice_fits(memory, status, compiling, monkeypatch, printed_by):
    monkeypatch.setattr(scaling, "compiled_row", lambda outline, topology, batch: row("a", 2, 20.0, memory=memory))
    printed_by(["preflight", as_flag(**CONFIG), "--topology=v5e:1x1,v5e:2x2"], status)


def test_it_resumes_from_the_file(compiling, tmp_path):
    kept, said = epath.Path(tmp_path / "scaling.json"), []
    first = scaling.scaling(tiny_settings(**CONFIG), slices("v5e:2x2"), path=kept, say=said.append)
    again = scaling.scaling(tiny_settings(**CONFIG), slices("v5e:2x2,v5e:2x4"), path=kept, say=said.append)
    assert [name for name, _ in compiling] == ["v5e:2x2", "v5e:2x4"]
    assert again.rows[0] == first.rows[0]
    assert said[-1].endswith("2 of 2 slices done")  # of two threads
    scaling.scaling(tiny_settings(**CONFIG, optim__lr=0.5), slices("v5e:2x2"), path=kept, say=said.append)
    assert [name for name, _ in compiling][2:] == ["v5e:2x2"]  # of another configuration
    for rows, batch in ((4, 8), (8, 16), (4, 8)):
        found = scaling.scaling(tiny_settings(**CONFIG), slices("v5e:2x2"), rows, path=kept, say=said.append)
        assert found.rows[0].batch == batch
    assert compiling[3:] == [("v5e:2x2", 8), ("v5e:2x2", 16)]  # of other batches


def test_threads_describe_slices_one_after_the_other(monkeypatch):
    """Two that loaded libtpu at the same time failed: "PJRT_Api already exists"."""
    inside = []

    def describe(**_):
        inside.append(len(inside))
        time.sleep(0.1)
        assert len(inside) == 1
        inside.clear()
        return SimpleNamespace(devices=[])

    monkeypatch.setattr("eeg2text_jax.commands.preflight.compiling.require_libtpu", lambda: None)
    monkeypatch.setattr("jax.experimental.topologies.get_topology_desc", describe)
    with ThreadPoolExecutor(2) as pool:
        assert list(pool.map(scaling.compiling.tpu_devices, slices("v5e:1x1,v5e:2x2"))) == [[], []]


@pytest.mark.parametrize("content", ["{}", "[1]", "not JSON", '{"programs": []}'])
def test_another_file_is_left_alone(content, compiling, tmp_path):
    kept = tmp_path / "report.json"
    kept.write_text(content)
    with pytest.raises(UserError, match="is not the table of an earlier preflight"):
        scaling.scaling(tiny_settings(**CONFIG), slices("v5e:2x2"), path=epath.Path(kept))
    assert kept.read_text() == content
    assert not compiling


@pytest.mark.parametrize(
    ("option", "said"),
    [
        ("--effort=least", "--effort=least does not work with several slices"),
        ("--largest=no", "--largest=no does not work"),
        ("--chip-batch=0", "--chip-batch=0: expected the rows of the batch on one chip"),
        ("--chip-batch=2.5", "--chip-batch=2.5: expected"),
    ],
)
def test_options(option, said, refused):
    assert said in refused(["preflight", as_flag(**CONFIG), "--topology=v5e", option])
    assert "--chip-batch needs several slices" in refused(
        ["preflight", as_flag(**CONFIG), "--topology=v5e:2x4", "--chip-batch=2"]
    )


def test_a_tiny_model_on_two_slices(tmp_path):
    """Through the real compiler."""
    flag = as_flag(**CONFIG, model__encoder_layers=0, parallel__fsdp=True)
    told, text = preflight(tmp_path / "scaling.json", flag, "--topology=v5e:1x1,v5e:2x4")
    one, eight = sorted(told["scaling"].values(), key=lambda found: found["topology"])
    assert (one["mesh"], one["traffic"], one["exposed"], one["hidden"]) == ([1, 1], 0, 0.0, 1.0)
    assert eight["mesh"] == [2, 4]
    assert eight["traffic"] > 0
    assert 0 < eight["exposed"] < eight["milliseconds"]
    assert "recommended: v5e:" in text
