"""The settings for fMRI, the list of scans in a BIDS folder, and the selection of those to read.

Only names, sidecars and tables are read, so the list is complete even if images are not downloaded.
"""

import collections
import dataclasses
import os
import re
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Annotated, Any

from eeg2text_jax import kinds
from eeg2text_jax.data.fmri.stories import Story, read_stories
from eeg2text_jax.data.source import is_pointer
from eeg2text_jax.errors import UserError, first_line
from eeg2text_jax.files import parse_json
from eeg2text_jax.stores.copying import at_hand

LISTED = "code/scan_exclude.json"  # where Narratives lists the scans to leave out; the only list that may be missing
IMAGES = ("_bold.nii.gz", "_bold.nii")
_NAME = re.compile(r"(?P<subject>sub-[a-zA-Z0-9]+)_(?:.+_)?task-(?P<task>[a-zA-Z0-9]+)(?:_run-(?P<run>[0-9]+))?")


@dataclasses.dataclass(frozen=True)
class FmriSpec:
    """The fields of `config.data.fmri`, documented in `configs/default.py`; `grid` is (X, Y, Z)."""

    transcripts: Annotated[str, kinds.place()]
    tasks: Annotated[tuple[str, ...], kinds.many(kinds.text(empty=False), least=0)]
    grid: Annotated[tuple[int, int, int], kinds.grid()]
    exclude: Annotated[str, kinds.place()]
    runs: Annotated[str, kinds.one_of("first", "all")]
    window: Annotated[int, kinds.whole(1, 10_000)]
    stride: Annotated[int, kinds.whole(1, 10_000)]
    lag_tr: Annotated[int, kinds.whole(0, 1000)]
    detrend: Annotated[int, kinds.whole(0, 10)]
    clip: Annotated[float, kinds.number(0, 1000, above=True)]
    mask: Annotated[float, kinds.number(0, 1, below=True)]
    dtype: Annotated[str, kinds.one_of("float16", "float32")]
    same_text: Annotated[tuple[tuple[str, ...], ...], kinds.many(kinds.many(kinds.text(empty=False), least=2), least=0)]
    strict: Annotated[bool, kinds.flag()]

    def group_of(self, stimulus: str) -> str:
        """Return the text group of a stimulus: the first name of its `same_text` group, else its own name."""
        return next((names[0] for names in self.same_text if stimulus in names), stimulus)

    def features_are(self) -> str:
        """Return a description of the voxels' values."""
        trend = f"less a polynomial of degree {self.detrend}" if self.detrend else "less the mean"
        masked = f", 0 where the mean is below {self.mask:g} of its 98th percentile" if self.mask else ""
        return (
            f"{' x '.join(map(str, self.grid))} voxels, each over its run {trend} and over its standard deviation, cut "
            f"at +-{self.clip:g}{masked}; frame t + {self.lag_tr} with the words of TR t"
        )


@dataclasses.dataclass(frozen=True)
class Scan:
    """One run of one subject, with the stories played in it."""

    folder: Path
    stem: str  # file name up to `_bold`
    subject: str
    task: str
    run: str
    tr: float  # repetition time, seconds
    slices: int  # number of slices (Z) in the sidecar, 0 if unknown
    stories: tuple[Story, ...]
    problem: str = ""  # `KIND|SENTENCE` on why the scan cannot be used; "" if it can

    @property
    def image(self) -> Path:
        """Path of the image, compressed or not; of the compressed one if neither exists."""
        paths = [self.folder / f"{self.stem}{ending}" for ending in IMAGES]
        return next((path for path in paths if os.path.lexists(path)), paths[0])


def window_starts(frames: range, length: int, stride: int) -> range:
    """Return the first frame of each window of `length` frames inside `frames`."""
    return range(frames.start, frames.stop - length + 1, stride)


def is_fmri(source: str) -> bool:
    """Return whether a source is a BIDS folder with functional images, downloaded or not."""
    root = Path(source)
    return root.is_dir() and next(root.glob("sub-*/func/*_bold.*"), None) is not None


def find_scans(root: Path) -> list[Scan]:
    """Return all functional scans below a BIDS folder, ordered by path."""
    names = (*IMAGES, "_bold.json")
    stems: dict[tuple[Path, str], None] = {}
    for path in sorted(root.glob("sub-*/func/*_bold.*")):
        ending = next((name for name in names if path.name.endswith(name)), "")
        if ending and _NAME.match(path.name):
            stems[path.parent, path.name.removesuffix(ending)] = None
    return [_read_scan(folder, stem) for folder, stem in stems]


def _read_scan(folder: Path, stem: str) -> Scan:
    name = _NAME.match(stem)
    scan = Scan(folder, stem, name["subject"], name["task"], name["run"] or "", 0.0, 0, ())
    sidecar = folder / f"{stem}_bold.json"
    if not sidecar.exists():
        return dataclasses.replace(
            scan, problem=f"no sidecar|has no {sidecar.name} beside it, which says how long a TR is"
        )
    try:
        found = parse_json(sidecar.read_text(encoding="utf8"))
        tr, slices = float(found["RepetitionTime"]), len(found.get("SliceTiming", ()))
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
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
    """The scans of the configured grid and tasks, divided into those to read and those to leave out."""

    wanted: list[Scan]
    left_out: dict[str, list[Scan]]  # reason -> scans


def select(root: Path, scans: Sequence[Scan], spec: FmriSpec) -> Selection:
    """Select the scans on the grid (by the sidecar's number of slices), without excluded scans and further runs.

    Raises UserError if no scan is on the grid, a task does not exist, or the list of excluded scans is unreadable.
    """
    tasks = {scan.task for scan in scans}
    if unknown := [name for name in spec.tasks if name not in tasks]:
        raise UserError(
            f"data.fmri.tasks names {unknown[0]!r}, which {root} does not have; expected some of "
            f"{', '.join(sorted(tasks))}."
        )
    on_grid = [
        scan for scan in scans if scan.slices in (0, spec.grid[2]) and (scan.task in spec.tasks or not spec.tasks)
    ]
    if not on_grid:
        raise UserError(
            f"{root}: none of its {len(scans)} functional scans has {spec.grid[2]} slices, as in data.fmri.grid "
            f"({', '.join(map(str, spec.grid))}); set data.fmri.grid to the grid of the scans."
        )
    excluded = read_exclusions(root, at_hand(spec.exclude))
    selection = Selection([], collections.defaultdict(list))
    usable = set()  # (subject, task) with a selected scan that has no problem
    for scan in on_grid:
        if any(stem in scan.stem for stem in excluded):
            selection.left_out["excluded by the data set's list"].append(scan)
        elif spec.runs == "first" and not scan.problem and (scan.subject, scan.task) in usable:
            selection.left_out["a further run"].append(scan)
        else:
            selection.wanted.append(scan)
            usable |= set() if scan.problem else {(scan.subject, scan.task)}
    return selection


def read_exclusions(root: Path, name: str) -> list[str]:
    """Return parts of names of scans to exclude, from JSON like `code/scan_exclude.json` (task -> subject -> names).

    Raises UserError if the file is no such list, or is missing and not the default one.
    """
    path = root / name
    if not name or not path.exists():
        if name and name != LISTED:
            raise UserError(
                f"{path}: there is no such file; set data.fmri.exclude to a list like code/scan_exclude.json."
            )
        return []
    try:
        found = parse_json(path.read_text(encoding="utf8"))
        return [str(stem) for stems in found.values() for names in stems.values() for stem in _strings(names)]
    except (OSError, ValueError, AttributeError, TypeError) as error:
        raise UserError(
            f"{path}: is no list of scans to leave out ({first_line(error)}); expected JSON, task -> subject -> names."
        ) from error


def _strings(names: Any) -> Iterable[str]:
    if not isinstance(names, list) or not all(isinstance(name, str) and name for name in names):
        raise ValueError(f"{names!r} where names of scans should be")
    return names


def not_here(image: Path) -> str:
    """Return the problem `KIND|SENTENCE` of an image that is missing or not downloaded, or "" if it is present."""
    if image.is_symlink() and not image.exists():
        return "not downloaded|is a link to a file that is not downloaded"
    if not image.exists():
        return "no image|has no image beside its sidecar"
    if is_pointer(image):
        return "not downloaded|is a pointer to a file that is not downloaded"
    return ""
