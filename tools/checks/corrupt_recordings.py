"""Damages valid recordings of every format at random and counts what `eeg2text prepare` makes of them.

    python tools/checks/corrupt_recordings.py --trials=300 [--seed=0] [--folder=DIR]

Every trial changes one place of one file: a byte, a bit, up to 64 bytes overwritten, removed or doubled, or the end
cut off. Exits with status 1 at the first traceback, or when a sample was lost, doubled or shifted without a word.
"""

import contextlib
import io
import sys
import tempfile
from pathlib import Path

import numpy as np

sys.path.extend(map(str, Path(__file__).parents[1:3]))  # tools/, and the clone for configs/

from configs.default import get_config
from eeg2text_jax.base.kinds import read_section
from eeg2text_jax.data.datafile import read_datafile
from eeg2text_jax.data.prepare import prepare
from eeg2text_jax.data.source_settings import DataSettings
from eeg2text_testing.corruption import Verdict, arguments, corrupt, judge, series
from eeg2text_testing.wang_ji_scripts import pickle_v5
from eeg2text_testing.zuco_files import Irregularities, Simulator, write_v5, write_v73

WORDS = ("one", "two", "three", "four", "five", "six")
TEXTS = [f"Sentence {i} has -- {word} – words, café" for i, word in enumerate(WORDS)]


def make_files(folder: Path) -> dict[str, Path]:
    """The same content in every format."""
    what = Irregularities(rejected=0, missing=(1,), unread=(2,))
    content = Simulator(0, np.float32, raw_samples=(2, 1)).subject(TEXTS, what)
    names = {form: folder / form / "resultsZAB_SR.mat" for form in ("v5", "v7", "v7.3")}
    names["pickle"] = folder / "pickle" / "task1-SR-dataset.pickle"
    for path in names.values():
        path.parent.mkdir(exist_ok=True)
    write_v5(names["v5"], content)
    write_v5(names["v7"], content, compress=True)
    write_v73(names["v7.3"], content)
    pickle_v5(names["pickle"], {"ZAB": names["v5"]})
    return names


def main() -> int:
    parser = arguments(__doc__, 300)
    parser.add_argument("--folder", type=Path, help="where to work (default: a temporary folder)")
    flags = parser.parse_args()
    with tempfile.TemporaryDirectory() as temporary:
        folder = flags.folder or Path(temporary)
        folder.mkdir(exist_ok=True)
        return run(folder, flags.trials, flags.seed)


def run(folder: Path, trials: int, seed: int) -> int:
    files, config = make_files(folder), get_config().data
    originals = {}
    for form, path in files.items():
        out = folder / f"{form}.h5"
        with contextlib.redirect_stderr(io.StringIO()):
            tally = prepare(read_section(DataSettings, config), out, [str(path)])
        originals[form] = (path.read_bytes(), read_datafile(out), tally)
    forms = list(files)

    def trial(number: int, rng: np.random.Generator) -> tuple[str, str, Verdict]:
        form = forms[number % len(forms)]
        content, data, tally = originals[form]
        way, damaged = corrupt(content, rng)
        files[form].write_bytes(damaged)
        (folder / "last").write_text(f"{number} {form} {way}")  # to be found if the process itself dies
        with contextlib.redirect_stderr(io.StringIO()):
            return form, way, judge(config, data, tally, files[form], folder / "damaged.h5")

    return series(trial, trials, seed)


if __name__ == "__main__":
    sys.exit(main())
