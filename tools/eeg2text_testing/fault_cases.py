"""Commands that a fault may meet, the stages of each, and the places that they write to: folders and buckets."""

import contextlib
import dataclasses
import json
import os
import shutil
import time
from collections.abc import Callable, Iterator
from pathlib import Path

from eeg2text_jax.base.stores.buckets import at_hand, is_address, parse
from eeg2text_testing.bucket_servers import SERVERS
from eeg2text_testing.forked_runs import Forked, arguments, what_counts

ROOT = Path(__file__).parents[2]
STORES = ("folder", *SERVERS)
TRAINING = (("preparing", ""), ("training", "metrics.jsonl"), ("saving", "checkpoints/*tmp*"))
PREDICTING = (("decoding", ".predictions.jsonl.partial"), ("scoring", "predictions.jsonl"))


@dataclasses.dataclass(frozen=True)
class Case:
    """A command and its stages, each with a pattern of the first file that it writes; "" for the first stage."""

    name: str
    command: Callable[[str], list[str]]  # of the workdir, a path or an address
    stages: tuple[tuple[str, str], ...]
    moves: bool = False  # its results name the workdir, so those of two places are not the same bytes


def flags(config: str, **fields: object) -> list[str]:
    """A configuration of the repository with fields replaced (`__` for dots)."""
    made = [f"--config.{name.replace('__', '.')}={value}" for name, value in fields.items()]
    return [f"--config={ROOT}/configs/{config}", *made]


STAGE = {"steps": 6, "eval_every": 3, "batch_size": 8}
FMRI = {
    "data__source": "synthetic-fmri",
    **{f"data__synthetic_fmri__{name}": value for name, value in
       {"subjects": 6, "stories": 24, "heard": 8, "frames": 40, "grid": (6, 6, 4), "vocabulary": 40}.items()},
    "data__fmri__lag_tr": 3,
    "data__fmri__mask": 0.2,
    "data__fmri__stride": 5,
    "split__method": "f",
    "batch__buckets": ((10, 56),),
    "model__encoder": "unicorn",
    "model__unicorn__hidden": 32,
    "model__unicorn__channels": (4, 8),
    "pretrain__enabled": True,
    **{f"pretrain__{stage}__{name}": value for stage in ("snapshot", "series") for name, value in STAGE.items()},
    "train__steps": 8,
    "train__eval_every": 4,
    "train__save_every": 2,
}  # fmt: skip
JUDGE = {"compilation_cache": "", "toy__steps": 60, "toy__pairs": 400, "optim__warmup_steps": 10}
JUDGE |= {"train__steps": 60, "train__eval_every": 10, "train__save_every": 10}
LLM = {
    "data__synthetic__sentences": 60, "train__steps": 8, "train__eval_every": 4, "train__save_every": 2,
    "batch__size": 8,
}  # fmt: skip
RANKS = {
    "objective": "contrastive",
    "contrastive__width": 16,
    "contrastive__hashed": 32,
    "grid__train_conditions": ("eeg", "noise", "length_only"),
    "grid__eval_conditions": ("eeg", "noise", "length_only", "shuffled"),
}


def cases(rows: Path) -> dict[str, Case]:
    """All commands; `rows` is a predictions file to be scored."""
    folds = tuple((f"fold {k}, {name}", f"fold_{k}/{path}") for k in (1, 2) for name, path in
                  (("training", "metrics.jsonl"), ("scoring", "predictions.jsonl")))  # fmt: skip
    stages = (*TRAINING[:1], ("snapshot", "snapshot/metrics.jsonl"), ("series", "series/metrics.jsonl"))
    short = {"train__steps": 8, "train__eval_every": 4, "train__save_every": 2}
    judging = (("the toy", ""), ("tuning", "metrics.jsonl"), ("saving", "checkpoints/*tmp*"), ("judging", "judge"))

    def of(name: str, command: list[str], stages: tuple[tuple[str, str], ...], **more: bool) -> Case:
        return Case(name, lambda place: [*command, f"--workdir={place}"], stages, **more)

    llm, judge = flags("llm.py:model=tiny,train=lora", **LLM), flags("judge.py:checkpoint=toy", **JUDGE)
    in_folds = (*TRAINING[:1], *folds, ("all folds", "predictions.jsonl"))
    found = (
        of("run", ["run", *arguments()], (*TRAINING, *PREDICTING)),
        of("folds", ["run", *arguments(**short), "--folds=2"], in_folds, moves=True),
        of("judge", ["judge", *judge], judging),
        of("fmri", ["run", *arguments(**FMRI)], (*stages, ("text", "metrics.jsonl"), *PREDICTING)),
        of("contrastive", ["run", *arguments(**RANKS)], (*TRAINING, ("ranking", "rankings.jsonl"))),
        of("llm", ["run", *llm], (*TRAINING, *PREDICTING)),
        Case(
            "score",
            lambda place: ["score", str(rows), f"--json={place}/scores.json", f"--rows={place}/rows.jsonl"],
            (("scoring", ""), ("one file written", "*")),
        ),
    )
    return {case.name: case for case in found}


@dataclasses.dataclass
class Place:
    """Where a command works: a workdir, what of it lies on this machine, and how its content is looked at."""

    workdir: str
    folder: Path  # of this machine
    log: Path

    def content(self) -> dict[str, str]:
        """What counts of the finished workdir (`forked_runs.what_counts`), copied out of its bucket."""
        if not is_address(self.workdir):
            return what_counts(self.folder, self.log)
        copy, answer = self.log.with_suffix(".copy"), self.log.with_suffix(".place")
        shutil.rmtree(copy, ignore_errors=True)

        def fetch() -> int:
            os.environ["EEG2TEXT_BUCKET_CACHE"] = str(copy)
            return answer.write_text(json.dumps(str(at_hand(self.workdir)))) and 0

        if (fetched := Forked(fetch, self.log)).wait():
            raise RuntimeError(fetched.output())
        return what_counts(Path(json.loads(answer.read_text())), self.log)

    def forget(self) -> None:
        """Removes what this machine has of a bucket, as if another one went on."""
        if is_address(self.workdir):
            shutil.rmtree(os.environ["EEG2TEXT_BUCKET_CACHE"], ignore_errors=True)

    def reached(self, pattern: str, since: float) -> bool:
        """Whether a stage has begun since a time, by the file that it writes first."""
        if not pattern:
            return True
        for path in self.folder.glob(pattern):
            with contextlib.suppress(FileNotFoundError):
                # A log and a product of an earlier start count, too; what is being written does not.
                passing = path.name.startswith(".") or "tmp" in path.name
                if not passing or path.stat().st_mtime > since:
                    return True
        return False


@contextlib.contextmanager
def place(store: str, out: Path) -> Iterator[Place]:
    """An empty workdir, the same path or address every time."""
    folder = out / f"{store}_work"
    if store == "folder":
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir(parents=True)
        yield Place(str(folder), folder, out / "log_of_looking")
        return
    shutil.rmtree(folder, ignore_errors=True)
    with SERVERS[store]() as server:
        os.environ.update(server.environment, EEG2TEXT_BUCKET_CACHE=str(folder))
        workdir = server.address("runs/one")
        yield Place(workdir, parse(workdir).run, out / "log_of_looking")


def wait_for(place_: Place, case: Case, stage: str, since: float, running: Forked) -> None:
    """Waits until a stage, or a later one, has begun, or the command has ended."""
    names = [name for name, _ in case.stages]
    patterns = [pattern for _, pattern in case.stages[names.index(stage) :]]
    while not running.ended() and not any(place_.reached(pattern, since) for pattern in patterns):
        time.sleep(0.01)


def met(place_: Place, case: Case, since: float) -> str:
    """The last stage that has begun."""
    return next(name for name, pattern in reversed(case.stages) if place_.reached(pattern, since))
