"""Recordings made up and written by MNE in four formats, each by one command to its verdict.

    python tools/checks/check_own.py DIR            # all of it, about 20 minutes of two cores
    python tools/checks/check_own.py DIR memory     # the peak memory of 4 and of 16 subjects alone

4 subjects read 60 sentences; words are in band power (`data/planted.py`). With the words the verdict
must be *uses EEG*; with everything but the words it must not. Voltages times 1e-6 and 1e9 must change no prediction.
"""

import json
import re
import subprocess
import sys
from pathlib import Path

from eeg2text_jax.data.planted import write_recordings

FORMATS = ("fif", "edf", "brainvision", "bids")


def run(folder: Path, how: str, *, extra: tuple[str, ...] = (), **choices: object) -> tuple[str, list[str]]:
    """Verdict and predictions of `eeg2text run` on such recordings."""
    fields = write_recordings(folder / "recordings", how, **choices)
    places = [f"--config.data.source={folder / 'recordings'}", f"--workdir={folder / 'run'}"]
    command = [sys.executable, "-m", "eeg2text_jax", "run", "--config=own", *places, *fields, *extra]
    with (folder / "log.txt").open("w") as log:
        subprocess.run(command, check=True, stdout=log, stderr=subprocess.STDOUT)
    verdict = re.findall(r"^VERDICT: (.*)$", (folder / "log.txt").read_text(), re.MULTILINE)[0]
    rows = (folder / "run/predictions.jsonl").read_text().splitlines()[1:]
    return verdict, [json.loads(row)["prediction"] for row in rows]


def peak(folder: Path, subjects: int) -> float:
    """Peak memory of `eeg2text prepare` on that many subjects, in MiB."""
    fields = write_recordings(folder, "fif", subjects=subjects)
    code = (
        "import resource, sys; from eeg2text_jax.commands.cli import main; assert not main(sys.argv[1:]); "
        "print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss)"
    )
    command = [sys.executable, "-c", code, "prepare", str(folder), f"--out={folder}.h5", *fields]
    return int(subprocess.run(command, check=True, capture_output=True, text=True).stdout.split()[-1]) / 1024


def main() -> int:
    root, wrong = Path(sys.argv[1]), 0
    few, many = (peak(root / f"subjects{n}", n) for n in (4, 16))
    print(f"peak memory of prepare: {few:.0f} MiB with 4 subjects, {many:.0f} with 16 ({many / few:.3f})", flush=True)
    wrong += many > 1.1 * few
    if "memory" in sys.argv[2:]:
        return int(bool(wrong))
    found = {}
    for how in FORMATS:
        for planted in (True, False):
            name = f"{how}, {'words' if planted else 'nothing'} in it"
            found[name] = run(root / f"{how}-{planted}", how, planted=planted)
            print(f"{name}: {found[name][0]}", flush=True)
            wrong += (found[name][0] == "uses EEG") != planted
    for scale in (1e-6, 1e9):
        verdict, predictions = run(root / f"fif-{scale:g}", "fif", scale=scale)
        before = found["fif, words in it"][1]
        other = sum(a != b for a, b in zip(predictions, before, strict=True))
        print(f"voltages times {scale:g}: {verdict}, {other} of {len(before)} predictions differ", flush=True)
        wrong += other > 0 or verdict != "uses EEG"
    return int(bool(wrong))


if __name__ == "__main__":
    sys.exit(main())
