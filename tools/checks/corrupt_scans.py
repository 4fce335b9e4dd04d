"""Damages a BIDS tree of stories at random and counts what `eeg2text prepare` makes of it.

    python tools/checks/corrupt_scans.py --trials=200 [--seed=0]

Every trial changes one place of one file (an image, packed or not, its sidecar or events, a transcript, the list of
scans to leave out): a byte, a bit, up to 64 bytes overwritten, removed or doubled, or the end cut off. Voxels say which
frame of which scan they are, so a frame that is not where the tables say is found. Exits with status 1 at the first
traceback, or where a window was lost, doubled or shifted without a word.
"""

import contextlib
import io
import shutil
import sys
import tempfile
from pathlib import Path

import numpy as np

sys.path.extend(map(str, Path(__file__).parents[1:3]))  # tools/, and the clone for configs/

from configs.default import get_config
from eeg2text_jax.base.errors import UserError
from eeg2text_jax.base.kinds import read_section
from eeg2text_jax.data.datafile import DataFile, read_datafile
from eeg2text_jax.data.prepare import prepare
from eeg2text_jax.data.source import Tally
from eeg2text_jax.data.source_settings import DataSettings
from eeg2text_testing.bids_stories import GRID, WINDOW, make_tree
from eeg2text_testing.corruption import Verdict, arguments, corrupt, series

KINDS = ("*_bold.nii*", "*_bold.json", "*_events.tsv", "align.csv", "scan_exclude.json")


def prepared(root: Path, out: Path) -> tuple[DataFile, Tally]:
    config = get_config().data
    config.fmri.update({"grid": GRID, "window": WINDOW, "dtype": "float32"})
    with contextlib.redirect_stdout(io.StringIO()):
        tally = prepare(read_section(DataSettings, config), out, [str(root)])
    return read_datafile(out), tally


def windows(data: DataFile) -> dict[tuple[str, str, int], tuple[bytes, str]]:
    """Subject, stimulus and first segment -> frames and text; frames rounded, as a changed voxel moves the mean."""
    found = {}
    for i in range(len(data)):
        key = str(data.subject[i]), str(data.task[i]), int(data.sentence_index[i])
        centre = np.median(data.words(i).reshape(WINDOW, -1), axis=1)
        found[key] = np.round(centre * 4).astype(int).tobytes(), str(data.sentence[i])
    return found


def judge(root: Path, out: Path, original: DataFile, expected: Tally) -> Verdict:
    """What a damaged tree gave, beside the intact one."""
    try:
        made, tally = prepared(root, out)
    except UserError as error:
        return Verdict("refused", str(error)) if "\n" not in str(error) else Verdict("WRONG", f"two lines: {error}")
    said = tally.notes != expected.notes or tally.dropped != expected.dropped
    before, after = windows(original), windows(made)
    if len(after) < len(made):
        return Verdict("WRONG", "a window is there twice")
    if not said and before.keys() != after.keys():
        return Verdict("WRONG", f"windows {sorted(before.keys() ^ after.keys())[:3]} were lost or appeared")
    same = before.keys() & after.keys()
    moved = [key for key in same if before[key][0] != after[key][0]]
    if moved and not said:
        return Verdict("WRONG", f"{len(moved)} windows have other frames, the first is {sorted(moved)[0]}")
    other = [key for key in same if before[key][1] != after[key][1]]
    return Verdict("noted" if said else "text changed" if other else "unseen")


def damage(root: Path, rng: np.random.Generator) -> str:
    """Changes one file of a random kind; says what it did."""
    kind = str(rng.choice(KINDS))
    paths = sorted(path for path in root.rglob(kind) if path.is_file())
    path = paths[rng.integers(len(paths))]
    way, content = corrupt(path.read_bytes(), rng)
    path.write_bytes(content)
    return f"{way} in {path.relative_to(root)}"


def main() -> int:
    flags = arguments(__doc__, 200).parse_args()
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary)
        intact = {packed: make_tree(folder / f"intact{packed}", packed=packed) for packed in (True, False)}
        originals = {packed: prepared(root, folder / f"{packed}.h5") for packed, root in intact.items()}

        def trial(number: int, rng: np.random.Generator) -> tuple[str, str, Verdict]:
            packed, root = number % 2 == 0, folder / "damaged"
            shutil.rmtree(root, ignore_errors=True)
            shutil.copytree(intact[packed], root)
            way = damage(root, rng)
            verdict = judge(root, folder / "damaged.h5", *originals[packed])
            return "packed" if packed else "plain", way, verdict

        return series(trial, flags.trials, flags.seed)


if __name__ == "__main__":
    sys.exit(main())
