"""docs/papers.md from eeg2text_jax/commands/papers.tsv: the papers line by line, and where each line is here.

python tools/site/papers_page.py > docs/papers.md

References of the column `here` are separated by `;`: `eeg2text COMMAND ...`, `config FIELD`, `judge FIELD` (of
configs/judge.py), a file, or `FILE::TEST`. tests/test_papers.py fails where one does not exist.
"""

import csv
from pathlib import Path

ROOT = Path(__file__).parents[2]
PAPERS = {
    "000": "Are EEG-to-Text Models Working?",
    "002": "Large Language Models as a Proxy For Human Evaluation (LATTEScore)",
    "003": "Cross-Subject Data Splitting for Brain-to-Text Decoding",
    "004": "Summaries by BART, T5 and BERT2BERT, and the metrics",
}
INTRODUCTION = """# The papers, line by line

After this page you can find what a paper says, the command, field, file or test that does it here, and what differs or
is needed. Recordings and large checkpoints are not part of this project: the commands can
make the tables that need them, but no such table is reproduced here. `config` fields are those of
[the configuration](configuration.md), `judge` fields those of `configs/judge.py`. *(code)* marks what only the
authors' code has. The first paper has a later version, Scientific Reports 16:350 (2025), doi
10.1038/s41598-025-29587-x; the rows follow arXiv:2405.06459.
"""


def rows() -> list[dict[str, str]]:
    with (ROOT / "eeg2text_jax/commands/papers.tsv").open(encoding="utf8", newline="") as file:
        return [{name: value or "" for name, value in row.items()} for row in csv.DictReader(file, delimiter="\t")]


def references(row: dict[str, str]) -> list[str]:
    return [part.strip() for part in row["here"].split(";") if part.strip()]


def page() -> str:
    parts = [INTRODUCTION]
    for paper, title in PAPERS.items():
        lines = [f"## {title}", "", "| where | what | here | differs, or needs |", "| --- | --- | --- | --- |"]
        for row in rows():
            if row["paper"] == paper:
                here = ", ".join(f"`{reference}`" for reference in references(row)) or "not here"
                cells = (row["place"], row["says"], here, row["differs or needs"])
                lines.append(f"| {' | '.join(cell.replace('*', chr(92) + '*') for cell in cells)} |")
        parts.append("\n".join(lines) + "\n")
    return "\n".join(parts)


if __name__ == "__main__":
    print(page(), end="")
