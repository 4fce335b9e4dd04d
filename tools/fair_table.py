"""Table 4 of the cross-subject paper with more columns, from finished runs: a row a workdir.

python tools/fair_table.py DIR [DIR ...] [--json=OUT]

Scores are free-running, trained and tested with the recordings; beside them the noise arm's, both teacher-forced, the
sizes of the split, what leaks, and the verdict of the audit.
"""

import argparse
import json
from pathlib import Path
from typing import Any

from eeg2text_jax.files import write_text

FIGURES = {
    "B-1": "word_bleu-1", "B-2": "word_bleu-2", "B-3": "word_bleu-3", "B-4": "word_bleu-4",
    "R1-R": "rouge-1-r", "R1-P": "rouge-1-p", "R1-F": "rouge-1-f",
}  # fmt: skip
# The paper's row that our copy of it has whole; its two rows of ZuCo lack BLEU-1 and most of ROUGE-1.
PUBLISHED = ("published: Narratives UniCoRN", (22.83, 5.69, 1.43, 0.48, 15.55, 24.80, 19.04))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("workdirs", nargs="+", type=Path)
    parser.add_argument("--json", default="")
    arguments = parser.parse_args()
    rows = [row(workdir) for workdir in arguments.workdirs]
    print(table(rows))
    if arguments.json:
        write_text(arguments.json, json.dumps(rows, indent=1) + "\n")


def row(workdir: Path) -> dict[str, Any]:
    """What a finished run has found.

    Seeds are averaged.
    """
    config, certificate, results = (
        json.loads((workdir / name).read_text()) for name in ("config.json", "split.json", "results.json")
    )
    audit = workdir / "audit.json"
    encoder, leakage = config["model"]["encoder"], certificate["leakage"][0]
    star = "*" if encoder == "unicorn" and not config["pretrain"]["enabled"] else ""
    return {
        "name": f"{workdir.name}: {encoder}{star}, split {config['split']['method']}",
        "recordings": {name: mean(results, "eeg", "free_running", figure) for name, figure in FIGURES.items()},
        "noise": {name: mean(results, "noise", "free_running", figure) for name, figure in FIGURES.items()},
        "forced": [mean(results, arm, "teacher_forced", FIGURES["B-1"]) for arm in ("eeg", "noise")],
        "samples": [certificate["parts"][part]["samples"] for part in ("train", "dev", "test")],
        "tslr": leakage["tslr"].get(
            "segment", leakage["tslr"]["letters-digits"]
        ),  # of windows, by what is heard in a TR
        "verdict": json.loads(audit.read_text())["verdict"] if audit.exists() else "",
    }


def mean(results: dict[str, Any], arm: str, mode: str, figure: str) -> float | None:
    """Of the arms of a condition, tested with the same; None where there is none."""
    found = [
        cell["metrics"][figure]["value"]
        for cell in results["cells"]
        if cell["mode"] == mode
        and cell["train_condition"] == cell["eval_condition"] == arm
        and figure in cell["metrics"]
    ]
    return sum(found) / len(found) if found else None


def table(rows: list[dict[str, Any]]) -> str:
    """Lines for a terminal."""
    width = max(len(PUBLISHED[0]), *(len(row["name"]) for row in rows))
    names = "".join(f"{name:>7}" for name in FIGURES)
    heading = f"{'':<{width}}{names}  noise B-1  forced B-1 (noise)  train / dev / test   TSLR  verdict"
    lines = [heading, f"{PUBLISHED[0]:<{width}}{numbers(PUBLISHED[1])}"]
    for row in rows:
        forced = "{:>10} ({})".format(*(number(value) for value in row["forced"]))
        sizes = " / ".join(map(str, row["samples"]))
        lines.append(
            f"{row['name']:<{width}}{numbers(row['recordings'].values())}{number(row['noise']['B-1']):>11}"
            f"{forced:>20}  {sizes:>18}{row['tslr']:>7.1%}  {row['verdict']}"
        )
    return "\n".join(lines)


def numbers(values: Any) -> str:
    return "".join(f"{number(value):>7}" for value in values)


def number(value: float | None) -> str:
    return "-" if value is None else f"{value:.2f}"


if __name__ == "__main__":
    main()
