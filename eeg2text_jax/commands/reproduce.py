"""`eeg2text reproduce TABLE`: what a table of the papers needs and costs, its missing runs, and the table itself."""

import argparse
import dataclasses
import math
import os
import shlex
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from eeg2text_jax.base.errors import UserError
from eeg2text_jax.base.files import write_text
from eeg2text_jax.base.kinds import read_section
from eeg2text_jax.base.packages import hide_torch
from eeg2text_jax.commands import paper_tables
from eeg2text_jax.commands.paper_tables import Run, finished, runs_of
from eeg2text_jax.data.datafile import read_outline
from eeg2text_jax.data.prepare import prepare
from eeg2text_jax.data.source_settings import DataSettings
from eeg2text_jax.instrument.metrics.tables import Table, write_table
from eeg2text_jax.judge.pairs import Pair, divide, read_pairs, write_pairs
from eeg2text_jax.training import sections
from eeg2text_jax.training.configuration import load_config, parse_config

# Samples of the train part of a data file that is not there yet: Jo et al.'s Table 1, and who heard and read what.
SAMPLES = {"zuco_sr-nr-tsr": 9951, "zuco_sr-nr-nrv2": 10710, "zuco": 9933, "narratives": 192_808}
SHARE = 0.37  # of a chip's peak in a training step of 32 samples: BART-large on a v5e by preflight (docs/speed.md)
BESIDE = 1.15  # evaluation on dev, decoding and scoring beside the training steps
READ = 1e9  # bytes of volumes read a second
JUDGES = ("google/flan-t5-xxl", "Qwen/Qwen2.5-72B-Instruct")  # the second stands for the paper's LLM62B
JUDGE_PARAMETERS = (11e9, 72e9)
# CPU seconds of a demonstration's run, by encoder and data, if its programs must be compiled and if an earlier run
# compiled them, and of `PROBE`, on a shared core of an AMD EPYC.
DEMO_SECONDS = {"transformer synthetic": (37.0, 14.0), "unicorn synthetic": (59.0, 22.0)}
DEMO_SECONDS |= {"unicorn synthetic-fmri": (112.0, 32.0), "judge": (29.0, 29.0)}
DEMO_TABLE = 5.0  # CPU seconds without runs: 3.1 to 3.4, and 4 more if Python may not write its bytecode
PROBE_SECONDS = 2.7


@dataclasses.dataclass(frozen=True)
class Wanted:
    table: str
    out: Path
    data: Path  # folder of the data files
    checkpoints: Path | None  # folder that has the checkpoints; None: they come from the Hub
    pairs: str
    conversations: str
    judges: tuple[str, ...]
    authors: bool
    demo: bool
    overrides: tuple[str, ...]  # --config.FIELD=VALUE for every run

    @property
    def runs(self) -> list[Run]:
        return runs_of(self.table)

    @property
    def missing(self) -> list[Run]:
        return [run for run in self.runs if not finished(self.out / run.name)]

    def twins(self) -> dict[Run, Run]:
        """Return run -> the first run of the same configuration: a demonstration cuts 50 and 80 epochs to two."""
        if not self.demo or self.table.startswith("latte"):
            return {run: run for run in self.runs}
        first: dict[str, Run] = {}
        return {run: first.setdefault(load_config(self.place(run)).to_json(), run) for run in self.runs}

    def place(self, run: Run) -> str:
        """Return what `--config` is for a run."""
        if run.config == "judge":
            return f"judge:checkpoint={'toy' if self.demo else self.checkpoint(run)},pairs={self.pairs_file}"
        more = ",demo=yes" if self.demo else ""
        return f"{run.config}:{run.argument}{',as=authors' if self.authors else ''}{more}"

    def checkpoint(self, run: Run) -> str:
        if run.config == "judge":
            return self.judges[run.argument.startswith("judge=two")]
        return load_config(dataclasses.replace(self, demo=False).place(run)).model.checkpoint

    @property
    def pairs_file(self) -> str:
        return str(self.out / "pairs.tsv") if self.demo else self.pairs

    def data_files(self) -> dict[Path, Any]:
        """Return data file -> the section `data` of a configuration that makes or reads it."""
        runs = [run for run in self.runs if run.config != "judge"]
        if self.table == "fair-1":
            runs = [Run("fair", f"model=unicorn,data={data}") for data in ("narratives", "zuco")]
        return {
            self.data / load_config(f"{run.config}:{run.argument}").data.source: load_config(self.place(run)).data
            for run in runs
        }

    def command(self, run: Run) -> list[str]:
        name = ["judge" if run.config == "judge" else "run", f"--config={self.place(run)}"]
        name.append(f"--workdir={self.out / run.name}")
        if self.demo:  # compiled programs of its own, so that the price does not depend on earlier runs
            name.append(f"--config.compilation_cache={self.out / 'programs'}")
        if run.config == "judge":
            conversations = str(self.out / "conversations.tsv") if self.demo else self.conversations
            if conversations and self.table == "latte-5":
                name.append(f"--config.test={conversations}")
            return [*name, *(_demo_judge(run) if self.demo else ()), *self.overrides]
        name.append(f"--config.data.source={self.data / load_config(f'{run.config}:{run.argument}').data.source}")
        if self.checkpoints and not self.demo:
            name.append(f"--config.model.checkpoint={self.checkpoints / Path(self.checkpoint(run)).name}")
        return [*name, *self.overrides]


def _demo_judge(run: Run) -> list[str]:
    width = 48 if run.argument == "judge=one" else 64
    fields = {"toy.width": width, "toy.steps": 300, "train.steps": 60, "train.eval_every": 20, "optim.warmup_steps": 10}
    return [f"--config.{name}={value}" for name, value in {**fields, "seeds": "(0,)", "optim.lr": "(0.3,)"}.items()]


def price_of(wanted: Wanted, run: Run) -> tuple[int, float, float, float]:
    """Return a run's steps, FLOPs of products, bytes of an arm in training, and bytes of volumes read."""
    import jax

    from eeg2text_jax.commands.preflight.programs import make_outline
    from eeg2text_jax.data.splits.methods import make_split
    from eeg2text_jax.models.brain import ReconstructionModel
    from eeg2text_jax.models.functional import training_flops
    from eeg2text_jax.training.grid_program import stage_names

    if run.config == "judge":
        size, judge = JUDGE_PARAMETERS[run.argument.startswith("judge=two")], load_config("judge")
        pairs = judge.train.steps * judge.batch.size * len(judge.seeds)
        return judge.train.steps, 6 * size * pairs * judge.batch.widths[1], 4 * size, 0.0
    name, config, *flags = wanted.command(run)
    settings = parse_config([config, *flags], name, options=("workdir",)).settings
    outline, path = make_outline(settings), Path(settings.data.source)
    samples = SAMPLES.get(path.stem, SAMPLES["zuco"])
    if path.exists():
        samples = len(make_split(read_outline(path), **vars(settings.split)).parts["train"])
    settings, model = sections.with_steps(settings, samples), outline.model
    stages: list[tuple[Any, Any, int]] = [(settings.train, model, settings.batch.size)]
    before: Any
    for before in stage_names(settings):
        if before == "step_one":
            stages.append((settings.step_one, model, settings.batch.size))
        else:
            stage = getattr(settings.pretrain, before)
            stages.append((stage, ReconstructionModel(model.eeg, before, model.pad_token), stage.batch_size))
    each = [stage.steps * training_flops(of, size, *bucket) for stage, of, size in stages for bucket in outline.buckets]
    flops = len(outline.arms) * sum(each) / len(outline.buckets)
    volume = math.prod(outline.features) * settings.data.fmri.window if len(outline.features) == 3 else 0
    size = sum(leaf.size for leaf in jax.tree.leaves(model.shapes))
    slots = 2 if settings.optim.name == "adamw" else 1
    read = 2.0 * samples * volume * sum(stage.epochs for stage, *_ in stages)
    return sum(stage.steps for stage, *_ in stages), flops, 4.0 * size * (3 + slots), read


PROBE = """
import time
import jax, jax.numpy as jnp
from eeg2text_jax.base.devices.mesh import product_pace
pace = product_pace()
def deep(x):
    for i in range(60):
        x = jnp.tanh(x @ x + i) + jnp.sort(x, axis=-1) * jnp.cumsum(x, axis=0)
    return x.sum()
begun, used = time.perf_counter(), time.process_time()
jax.jit(jax.grad(deep)).lower(jnp.ones((8, 8))).compile()
wall, used = time.perf_counter() - begun, time.process_time() - used
print(pace, len(jax.devices()), wall, used, jax.devices()[0].device_kind)
"""


def measured(environment: dict[str, str]) -> tuple[float, int, float, float, str]:
    """Measure products a second, devices, wall and CPU seconds of a compilation, and the device's name."""
    environment = {**environment, "JAX_ENABLE_COMPILATION_CACHE": "false"}
    done = subprocess.run([sys.executable, "-c", PROBE], capture_output=True, text=True, env=environment, check=False)
    if done.returncode:
        raise UserError(f"this machine cannot be measured: {(done.stderr.splitlines() or ['no message'])[-1]}")
    pace, count, passed, used, kind = done.stdout.splitlines()[-1].split(" ", 4)
    return float(pace), int(count), float(passed), float(used), kind


def load() -> float:
    """Return the seconds that pass in a second of CPU time at present: 1 on a free core."""
    begun, used = time.perf_counter(), time.process_time()
    while time.process_time() - used < 0.2:
        pass
    return (time.perf_counter() - begun) / (time.process_time() - used)


def demo_seconds(wanted: Wanted) -> float:
    """Return the CPU seconds that a demonstration still takes; runs of one model and data share programs."""
    compiled: set[tuple[str, str]] = set()
    seconds, twins, missing = DEMO_TABLE, wanted.twins(), wanted.missing
    for run in sorted(wanted.runs, key=missing.__contains__):  # finished runs first
        kind, of = "judge", run.argument
        if run.config != "judge":
            config = load_config(wanted.place(run))
            kind, of = f"{config.model.encoder} {config.data.source}", config.model.backbone
        if run in missing and twins[run] == run:
            seconds += DEMO_SECONDS[kind][(kind, of) in compiled]
        compiled.add((kind, of))
    return seconds


def price_lines(wanted: Wanted, topology: str, environment: dict[str, str]) -> list[str]:
    """Return what a table needs: data, checkpoints, steps, memory, and the hours of its missing runs."""
    lines, missing = [paper_tables.TABLES[wanted.table].title], wanted.missing
    if wanted.table.startswith("latte"):
        lines.append(f"data: pairs {wanted.pairs_file or 'NOT given (--pairs=FILE)'}")
    for path in wanted.data_files():  # none of the latte tables
        lines.append(f"data: {path}, {'there' if path.exists() else 'made up' if wanted.demo else 'NOT there'}")
    if missing and not wanted.demo:
        lines.append(f"checkpoints: {', '.join(dict.fromkeys(map(wanted.checkpoint, missing)))}")
    lines.append(f"runs: {len(wanted.runs)}, of which {len(wanted.runs) - len(missing)} are finished")
    if not missing:
        cost = f"about {DEMO_TABLE * load():.0f} seconds ({DEMO_TABLE:.0f} of CPU time) at this machine's present load"
        return [*lines, f"price: {cost if wanted.demo else 'a minute or two of scoring'}"]
    if wanted.demo:
        _, _, passed, used, kind = measured(environment)
        seconds = demo_seconds(wanted) / PROBE_SECONDS
        cost = f"about {seconds * passed / 60:.1f} minutes ({seconds * used:.0f} s of CPU time)"
        return [*lines, f"price: {cost} on this {kind} at its present load, by a compilation on it"]
    if topology:
        from eeg2text_jax.commands.preflight.compiling import parse_topology

        slice_ = parse_topology(topology)
        chips, pace, kind = math.prod(slice_.shape), SHARE * slice_.chip.flops, slice_.chip.name
        how = f"{SHARE:.0%} of the peak, as preflight estimates"
    else:
        pace, chips, _, _, kind = measured(environment)
        how = "the pace of products measured on it"
    total = 0.0
    for run in missing:
        steps, flops, memory, read = price_of(wanted, run)
        hours = (BESIDE * flops / pace / chips + read / READ) / 3600
        total += hours
        cost = f"{steps:,} steps, {flops:.2e} FLOPs, an arm has {memory / 2**30:.1f} GiB; {chips} x {kind}"
        lines.append(f"  {run.name}: {cost}: {hours:.2f} h")
    return [*lines, f"price: {total:.2f} h on {chips} x {kind} ({total * chips:.1f} chip-hours), by {how}"]


def check_needs(wanted: Wanted) -> None:
    if wanted.demo:
        return
    if wanted.table.startswith("latte"):
        if not wanted.pairs:
            raise UserError(f"reproduce {wanted.table}: --pairs=FILE.tsv is missing; docs/meaning.md says its columns.")
    elif wanted.missing or wanted.table == "fair-1":
        for path in wanted.data_files():
            if not path.exists():
                raise UserError(f"{path}: there is no such data file; make it with `eeg2text prepare`, or give --data.")


def make_demo_data(wanted: Wanted) -> None:
    wanted.out.mkdir(parents=True, exist_ok=True)
    if wanted.table.startswith("latte"):
        for name, count, seed in (("pairs", 600, 0), ("conversations", 200, 1)):
            if not (path := wanted.out / f"{name}.tsv").exists():
                write_text(path, write_pairs(spoken_pairs(count, seed)))
    for path, data in wanted.data_files().items():
        if not path.exists():
            prepare(read_section(DataSettings, data), path, [])


def spoken_pairs(count: int, seed: int) -> list[Pair]:
    """Return made-up pairs of ten speakers, with the columns of LATTEScore's tables."""
    from eeg2text_jax.judge.toy import toy_pairs

    causes, pairs = ("MS", "Cleft Palate", "ALS", "PLS", "VCP", "DS"), []
    for i, pair in enumerate(toy_pairs(count, seed)):
        speaker = i % 10
        about: dict[str, Any] = {"speaker": f"S{speaker + 1}", "severity": ("Mild", "Moderate", "Severe")[speaker % 3]}
        about |= {"etiology": causes[speaker % 6], "speech_type": ("prompted", "unprompted")[i // 10 % 2]}
        rated = "0" if pair.preserved and i % 2 else pair.rated
        pairs.append(dataclasses.replace(pair, **about, rated=rated, id=str(i), kind=""))
    return pairs


def make_runs(wanted: Wanted, part: tuple[int, int], environment: dict[str, str]) -> None:
    """Make the missing runs, each in a process of its own; of `part` (k, n) every n-th from k."""
    (k, n), twins = part, wanted.twins()
    for number, run in enumerate(wanted.runs):
        if number % n != k - 1 or finished(wanted.out / run.name):
            continue
        print(f"\n=== {run.name} ({number + 1} of {len(wanted.runs)})", flush=True)
        folder, twin = wanted.out / run.name, twins[run]
        if twin != run and (folder.is_symlink() or not folder.exists()):
            print(f"in this demonstration the same as {twin.name}, to which it is a link")
            if not folder.is_symlink():
                folder.symlink_to(twin.name)
            continue
        command = wanted.command(run)
        done = subprocess.run([sys.executable, "-m", "eeg2text_jax", *command], env=environment, check=False)
        if done.returncode:
            how = f"ended with status {done.returncode}; its message is above. The same command resumes it."
            raise UserError(f"{run.name}: {how}")


def table_of(wanted: Wanted) -> Table:
    """Return the table from the runs that are finished; "-" stands for what is missing."""
    name, out = wanted.table, wanted.out
    alone = {"jo-4": paper_tables.examples_table, "fair-figure-4": paper_tables.figure_table}
    alone |= {"latte-4": paper_tables.latte_auc_table, "latte-5": paper_tables.latte_speakers_table}
    if name in alone:
        return alone[name](out)
    if name == "fair-1":
        return paper_tables.leakage_table([read_outline(path) for path in wanted.data_files()])
    if not name.startswith("latte"):
        return (paper_tables.jo_table if name.startswith("jo") else paper_tables.fair_table)(name, out)
    pairs, split = read_pairs(wanted.pairs_file, "severity"), load_config("judge").split
    return paper_tables.pairs_table(name, pairs, divide(pairs, split.ratio, split.seed, wanted.pairs_file))


def commands(wanted: Wanted) -> list[str]:
    return [shlex.join(["eeg2text", *wanted.command(run)]) for run in wanted.missing]


def _parse_reproduce(argv: Sequence[str]) -> tuple[argparse.Namespace, list[str]]:
    parser = argparse.ArgumentParser(prog="eeg2text reproduce", description=main.__doc__)
    add = parser.add_argument
    add("table", choices=paper_tables.TABLES, metavar="TABLE", help=", ".join(paper_tables.TABLES))
    add("--out", type=Path, required=True, metavar="DIR", help="folder of the runs and of the table")
    add("--data", type=Path, default=Path(), metavar="DIR", help="folder of the data files; default: the current one")
    add("--checkpoints", type=Path, metavar="DIR", help="folder with the checkpoints; default: the Hub")
    add("--pairs", default="", metavar="FILE", help="labelled pairs of the latte tables")
    add("--conversations", default="", metavar="FILE", help="test pairs of latte-5")
    add("--judges", default="", metavar="ONE,TWO", help="checkpoints of the two judges of latte-4")
    kinds, meant = ("paper", "authors"), "authors: configs/paper.py:as=authors"
    add("--as", dest="authors", choices=kinds, default="paper", help=meant)
    add("--demo", action="store_true", help="made-up data and tiny models, in minutes")
    add("--list", action="store_true", help="print the price and the command of each missing run, and run nothing")
    priced = "the price is for these chips, e.g. v5e:2x4; default: this machine"
    add("--topology", default="", metavar="SLICE", help=priced)
    add("--part", type=parse_part, default=(1, 1), metavar="K/N", help="make only every N-th run, from the K-th on")
    flags, overrides = parser.parse_known_args(argv)
    if wrong := [option for option in overrides if not option.startswith("--config.")]:
        raise UserError(f"{wrong[0]}: reproduce has no such option; expected --config.FIELD=VALUE, or one of --help.")
    return flags, overrides


def main(argv: Sequence[str]) -> int:
    """Make a table or figure of the papers: print what it needs and its price, run what is missing, write the table.

    Finished runs in OUT are read only; a killed call resumes. Other options, --config.FIELD=VALUE, go to every run.
    """
    flags, overrides = _parse_reproduce(argv)
    environment = dict(os.environ)
    os.environ["JAX_PLATFORMS"] = "cpu"  # the devices are for the runs, which are processes of their own
    hide_torch()
    judges = tuple(flags.judges.split(",")) if flags.judges else JUDGES
    if len(judges) != 2:
        raise UserError(f"--judges={flags.judges}: expected two checkpoints, with a comma.")
    names = ("table", "out", "checkpoints", "pairs", "conversations", "demo")
    wanted = Wanted(
        **{name: getattr(flags, name) for name in names},
        data=flags.out if flags.demo else flags.data,
        judges=judges,
        authors=flags.authors == "authors",
        overrides=tuple(overrides),
    )
    print("\n".join(price_lines(wanted, flags.topology, environment)), flush=True)
    if flags.demo:
        make_demo_data(wanted)
    if flags.list:
        print("\n".join(commands(wanted)))
        return 0
    check_needs(wanted)
    make_runs(wanted, flags.part, environment)
    print()
    result, notes = table_of(wanted), paper_tables.footnotes(flags.table)
    paper_tables.show(result)
    judged = paper_tables.verdicts([flags.out / run.name for run in wanted.runs])
    if judged.rows:
        paper_tables.show(judged)
    print("\n".join(f"- {note}" for note in notes))
    below = [*(": ".join(row[:2]) for row in judged.rows), *notes]
    for suffix in (".md", ".tex", ".csv"):
        write_table(flags.out / f"{flags.table}{suffix}", result, below)
    print(f"wrote {flags.table}.md, .tex and .csv in {flags.out}")
    return 0


def parse_part(text: str) -> tuple[int, int]:
    """Parse K/N, the K-th of N parts."""
    k, _, n = text.partition("/")
    if not (k.isdecimal() and n.isdecimal() and 1 <= int(k) <= int(n)):
        raise UserError(f"--part={text}: expected K/N with K from 1 to N, such as 1/4.")
    return int(k), int(n)
