"""`eeg2text score` and `eeg2text audit` of files of rankings."""

import argparse
import dataclasses
import json
from collections.abc import Sequence
from typing import Any

from etils import epath

from eeg2text_jax.auditing.decision import deciding_of
from eeg2text_jax.auditing.judged import Judged, JudgedFile
from eeg2text_jax.auditing.provenance import RANKED_HERE
from eeg2text_jax.auditing.rank_report import ranking_text, write_ranking_report
from eeg2text_jax.auditing.which_sentence import audit_rankings, select_rankings
from eeg2text_jax.errors import UserError
from eeg2text_jax.files import file_digest, write_text
from eeg2text_jax.metrics.ranks import score_rankings
from eeg2text_jax.predictions.rankings import Ranking, RankingSet, is_rankings, read_rankings
from eeg2text_jax.predictions.selection import read_conditions
from eeg2text_jax.study.metric_names import BLEU_1
from eeg2text_jax.study.own_run import is_of_its_run
from eeg2text_jax.study.workdir import check_unchanged


def describe(found: RankingSet) -> str:
    """What a file holds in one line."""
    rows = found.rows
    sizes = sorted({len(row.candidates) for row in rows})
    conditions = ", ".join(dict.fromkeys(f"{row.train_condition} → {row.eval_condition}" for row in rows))
    return (
        f"{found.path}: {len(rows)} rankings of {len({row.sentence_id for row in rows})} sentences among "
        f"{' or '.join(map(str, sizes))} candidates, {', '.join(dict.fromkeys(row.mode for row in rows))}; "
        f"training → evaluation {conditions}."
    )


def ranked_cells(path: epath.Path) -> list[dict[str, Any]]:
    """The cells of a file, as `eeg2text score` has them."""
    found = read_rankings(path)
    print(describe(found))
    return [{**cell, "flags": []} for cell in score_rankings(found.rows)]


def audit_ranked_files(flags: argparse.Namespace, argv: Sequence[str]) -> int:
    """The verdict for files of rankings; the exit status."""
    if flags.groups:
        raise UserError(f"--groups={flags.groups}: levels are of decoded text, not of rankings; leave it out.")
    endpoint = "top-5" if flags.endpoint == BLEU_1 else flags.endpoint
    recordings: list[str] = []
    files: list[JudgedFile] = []
    ours: list[bool] = []

    def read(path: Any) -> list[Ranking]:
        if not is_rankings(path):
            raise UserError(f"{path}: holds no rankings, and {flags.eeg} does; audit files of one kind.")
        check_unchanged(path)
        found = read_rankings(path)
        recordings.append(str(found.header.get("recording", "eeg")))
        files.append(JudgedFile(str(path), file_digest(path), len(found.rows)))
        ours.append(is_of_its_run(found))
        print(describe(found))
        return found.rows

    if flags.control:
        conditions = read_conditions(flags.eeg, flags.control, read, flags.arm)
    else:
        conditions = select_rankings(read(flags.eeg))
    name, *_ = conditions
    result = audit_rankings(
        conditions.pop(name),
        conditions,
        name=name,
        endpoint=endpoint,
        margin=flags.margin,
        resamples=flags.resamples,
        seed=flags.seed,
        common=flags.common,
        stratum_size=flags.stratum_size,
        recording=recordings[0],
        deciding=deciding_of(flags.deciding, conditions),
        proof=flags.proof,
        verified=RANKED_HERE if all(ours) else "",
    )
    judged = Judged(tuple(files)).dated(["eeg2text", "audit", *argv])
    result = dataclasses.replace(result, judged=judged)
    print(ranking_text(result))
    if flags.json:
        write_text(flags.json, json.dumps(result.to_json(), indent=1, ensure_ascii=False) + "\n")
    if flags.html:
        write_ranking_report(result, flags.html)
    return result.exit_status
