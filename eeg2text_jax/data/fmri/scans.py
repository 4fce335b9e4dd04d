"""Which scans a BIDS folder has, which of them are wanted, and whether their images are there.

Nothing but names, sidecars and tables is read here: the index of a data set whose images are not downloaded is whole.
"""

import dataclasses
import json
import os
import re
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from eeg2text_jax.data.fmri.fmri_spec import FmriSpec
from eeg2text_jax.data.fmri.stories import Story, read_stories
from eeg2text_jax.errors import UserError, first_line
from eeg2text_jax.stores.copying import at_hand

IMAGES = ("_bold.nii.gz", "_bold.nii")
_NAME = re.compile(r"(?P<subject>sub-[a-zA-Z0-9]+)_(?:.+_)?task-(?P<task>[a-zA-Z0-9]+)(?:_run-(?P<run>[0-9]+))?")
_POINTER = 1024  # bytes: what git-annex leaves in the place of a file is smaller


@dataclasses.dataclass(frozen=True)
class Scan:
    """One run of one subject and what was played in it; `problem` is why it cannot be used, empty where it can.

    Fields:
      stem: its file name up to `_bold`.
      tr: repetition time, seconds.
      slices: Z by the sidecar; 0 where it does not say.
    """

    folder: Path
    stem: str
    subject: str
    task: str
    run: str
    tr: float
    slices: int
    stories: tuple[Story, ...]
    problem: str = ""

    @property
    def image(self) -> Path:
        """The image, packed or not; the packed one where there is none."""
        paths = [self.folder / f"{self.stem}{ending}" for ending in IMAGES]
        return next((path for path in paths if os.path.lexists(path)), paths[0])

    @property
    def events(self) -> Path:
        return self.folder / f"{self.stem}_events.tsv"

    def frames(self, tr: float = 0.0) -> int:
        """Story frames by its own TR, or by another one."""
        return sum(len(story.frames(tr or self.tr)) for story in self.stories)

    def windows(self, length: int, stride: int = 1, tr: float = 0.0) -> int:
        """Windows of `length` frames that lie inside a story."""
        return sum(len(starts_of(story.frames(tr or self.tr), length, stride)) for story in self.stories)


def starts_of(frames: range, length: int, stride: int) -> range:
    """First frames of the windows that lie inside `frames`."""
    return range(frames.start, frames.stop - length + 1, stride)


def is_fmri(source: str) -> bool:
    """Whether a source is a BIDS folder with functional images, downloaded or not."""
    root = Path(source)
    return root.is_dir() and next(root.glob("sub-*/func/*_bold.*"), None) is not None


def find_scans(root: Path) -> list[Scan]:
    """Every functional scan below a BIDS folder, in the order of the names."""
    names = (*IMAGES, "_bold.json")
    stems: dict[tuple[Path, str], None] = {}
    for path in sorted(root.glob("sub-*/func/*_bold.*")):
        ending = next((name for name in names if path.name.endswith(name)), "")
        if ending and _NAME.match(path.name):
            stems[path.parent, path.name.removesuffix(ending)] = None
    return [_read_scan(folder, stem) for folder, stem in stems]


def _read_scan(folder: Path, stem: str) -> Scan:
    told = _NAME.match(stem)
    scan = Scan(folder, stem, told["subject"], told["task"], told["run"] or "", 0.0, 0, ())
    sidecar = folder / f"{stem}_bold.json"
    if not sidecar.exists():
        return dataclasses.replace(
            scan, problem=f"no sidecar|has no {sidecar.name} beside it, which says how long a TR is"
        )
    try:
        found = json.loads(sidecar.read_text(encoding="utf8"))
        tr, slices = float(found["RepetitionTime"]), len(found.get("SliceTiming", ()))
    except (OSError, ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        problem = f"unreadable sidecar|its sidecar {sidecar.name} does not say how long a TR is ({first_line(error)})"
        return dataclasses.replace(scan, problem=problem)
    if not 0.1 <= tr <= 20:
        problem = f"impossible TR|its sidecar {sidecar.name} says RepetitionTime {tr:g}; expected seconds, 0.1 to 20"
        return dataclasses.replace(scan, slices=slices, problem=problem)
    try:
        stories = read_stories(folder / f"{stem}_events.tsv")
    except UserError as error:
        return dataclasses.replace(scan, tr=tr, slices=slices, problem=str(error))
    return dataclasses.replace(scan, tr=tr, slices=slices, stories=stories)


@dataclasses.dataclass(frozen=True)
class Selection:
    """Scans that are `wanted`, and those `left_out` by reason; those of another grid or task are in neither."""

    wanted: list[Scan]
    left_out: dict[str, list[Scan]]
    others: int

    def counts(self) -> str:
        """How many scans, pairs of subject and task, subjects and tasks are wanted."""
        pairs = {(scan.subject, scan.task) for scan in self.wanted}
        return (
            f"{len(self.wanted)} scans, {len(pairs)} pairs of subject and task, "
            f"{len({subject for subject, _ in pairs})} subjects, {len({task for _, task in pairs})} tasks"
        )


def select(root: Path, scans: Sequence[Scan], spec: FmriSpec) -> Selection:
    """Scans on the grid, by the number of slices that the sidecar states, less those excluded and further runs.

    Raises:
      UserError: there is no scan of the grid, or the list of scans to exclude cannot be read.
    """
    tasks = {scan.task for scan in scans}
    for name in spec.tasks:
        if name not in tasks:
            raise UserError(f"data.fmri.tasks names {name!r}; {root} has {', '.join(sorted(tasks))}.")
    on_grid = [
        scan for scan in scans if scan.slices in (0, spec.grid[2]) and (scan.task in spec.tasks or not spec.tasks)
    ]
    if not on_grid:
        raise UserError(
            f"{root}: none of its {len(scans)} functional scans has {spec.grid[2]} slices, as data.fmri.grid "
            f"({', '.join(map(str, spec.grid))}) says."
        )
    listed = read_exclusions(root, at_hand(spec.exclude))
    left_out: dict[str, list[Scan]] = {}
    wanted, taken = [], set()
    for scan in on_grid:
        reason = ""
        if any(stem in scan.stem for stem in listed):
            reason = "excluded by the data set's list"
        elif spec.runs == "first" and not scan.problem and (scan.subject, scan.task) in taken:
            reason = "a further run"
        if reason:
            left_out.setdefault(reason, []).append(scan)
            continue
        wanted.append(scan)
        if not scan.problem:
            taken.add((scan.subject, scan.task))
    return Selection(wanted, left_out, len(scans) - len(on_grid))


def read_exclusions(root: Path, name: str) -> list[str]:
    """Beginnings of names in a list like the data set's `code/scan_exclude.json`: task -> subject -> names.

    Raises:
      UserError: it is there and is no such list, or it is not there and is not the usual one.
    """
    path = root / name
    if not name or not path.exists():
        if name and name != FmriSpec.exclude:
            raise UserError(
                f"{path}: there is no such file; data.fmri.exclude names a list like code/scan_exclude.json."
            )
        return []
    try:
        found = json.loads(path.read_text(encoding="utf8"))
        return [str(stem) for stems in found.values() for names in stems.values() for stem in _strings(names)]
    except (OSError, ValueError, AttributeError, TypeError, RecursionError) as error:
        raise UserError(
            f"{path}: is no list of scans to leave out ({first_line(error)}); expected JSON, task -> subject -> names."
        ) from error


def _strings(names: Any) -> Iterable[str]:
    if not isinstance(names, list) or not all(isinstance(name, str) and name for name in names):
        raise ValueError(f"{names!r} where names of scans should be")
    return names


def not_here(image: Path) -> str:
    """Why an image cannot be opened, `kind|sentence`; empty where it can."""
    if image.is_symlink() and not image.exists():
        return "not downloaded|is a link to what is not downloaded"
    if not image.exists():
        return "no image|has no image beside its sidecar"
    if image.stat().st_size < _POINTER and b"/annex/objects/" in image.read_bytes():
        return "not downloaded|is a pointer to what is not downloaded"
    return ""
