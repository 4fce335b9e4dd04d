"""`eeg2text audit`: judge from predictions files whether a model uses the EEG."""

import argparse
import dataclasses
import json
from collections.abc import Collection, Sequence
from pathlib import Path
from typing import Any

from etils import epath

from eeg2text_jax.auditing.audit import Options, audit
from eeg2text_jax.auditing.beyond_time import NOT_BEYOND_STATUS
from eeg2text_jax.auditing.compare import deciding_of
from eeg2text_jax.auditing.endpoints import Endpoint, named, rank_endpoints
from eeg2text_jax.auditing.provenance import Judged, JudgedFile, checked_proof
from eeg2text_jax.auditing.result import AuditResult, result_text
from eeg2text_jax.auditing.strata import STRATUM_SIZE
from eeg2text_jax.auditing.verdict import EXIT_STATUS
from eeg2text_jax.errors import UserError
from eeg2text_jax.files import file_digest, write_text
from eeg2text_jax.model_metrics import endpoints, makers_of
from eeg2text_jax.predictions.file import MODES, Prediction, PredictionSet
from eeg2text_jax.predictions.foreign import mode_name
from eeg2text_jax.predictions.packed import read_text
from eeg2text_jax.predictions.rankings import (
    Ranking,
    RankingSet,
    describe_rankings,
    is_rankings,
    read_candidates,
    read_choices,
    read_rankings,
)
from eeg2text_jax.predictions.read import add_options, check_given_once, describe, read_any
from eeg2text_jax.predictions.read import options_of as reading
from eeg2text_jax.predictions.selection import (
    LIKELY,
    groups_of,
    join_metadata,
    likely_groups,
    read_conditions,
    select_arms,
)
from eeg2text_jax.study.metric_names import BLEU_1, ENDPOINTS
from eeg2text_jax.study.own_run import is_of_its_run, neighbors_of_run
from eeg2text_jax.study.workdir import check_unchanged

EPILOG = (
    """
The file given with --eeg may have several evaluation conditions, as predictions.jsonl of a run has: then the
predictions from EEG are judged against the predictions of the same arms under the other conditions. Without a control,
the scores of the predictions are judged against their scores for other sentences. For a file of rankings
(rankings.jsonl), --endpoint is top-5, top-1 or rank.

exit status: """
    + ", ".join(f"{status} {verdict}" for verdict, status in EXIT_STATUS.items())
    + f", {NOT_BEYOND_STATUS} uses EEG or content: not beyond its time; 2 bad input"
)


def main(argv: list[str]) -> int:
    flags = parse(argv)
    result = audit_rankings(flags) if is_rankings(flags.eeg) else audit_texts(flags)
    result = dataclasses.replace(result, judged=result.judged.dated(["eeg2text", "audit", *argv]))
    print(result_text(result))
    if flags.json:
        write_text(flags.json, json.dumps(result.to_json(), indent=1, ensure_ascii=False) + "\n")
    if flags.html:
        from eeg2text_jax.auditing.report import write_report

        write_report(result, flags.html)
    return result.exit_status


def options_of(flags: argparse.Namespace, name: str, controls: Collection[str], header: dict[str, Any]) -> Options:
    """Return the options of the audit that apply to files of texts and to files of rankings alike.

    `name` is the condition of the predictions from EEG, `controls` names the controls, `header` is of the EEG file.
    """
    return Options(
        name=name,
        margin=flags.margin,
        resamples=flags.resamples,
        seed=flags.seed,
        common=flags.common,
        stratum_size=flags.stratum_size,
        training_text=read_text(flags.train_text).split("\n") if flags.train_text else None,
        proof=flags.proof,
        deciding=deciding_of(flags.deciding, controls),
        recording=str(header.get("recording", "eeg")),
    )


def audit_texts(flags: argparse.Namespace) -> AuditResult:
    """Audit the files of predicted texts that the flags name."""
    sets: list[PredictionSet] = []

    def read(path: Path) -> list[Prediction]:
        check_unchanged(path)
        found = read_any(path, mode=flags.mode, groups=groups or LIKELY, **reading(flags))
        print(describe(found))
        sets.append(found)
        return join_metadata(found.predictions, flags.meta, groups) if flags.meta else found.predictions

    groups = flags.groups.split(",") if flags.groups else []
    endpoint, *secondary = endpoints_of(flags)
    for note in check_given_once([flags.eeg, *flags.control], flags.reference):
        print(note)
    conditions = read_conditions(flags.eeg, flags.control, read, flags.arm)
    name, *_ = conditions
    rows = conditions.pop(name)
    likely = [] if groups else likely_groups(sets[0])
    labels, notes = groups_of(sets[0], groups or likely, flags.meta)
    if likely:
        notes.append(f"grouped by {', '.join(likely)}, chosen by its name; --groups=COLUMN takes another column")
    for note in notes:
        print(f"{note}.")
    result = audit(
        rows,
        conditions,
        mode=flags.mode,
        options=options_of(flags, name, conditions, sets[0].header),
        endpoint=endpoint,
        secondary=secondary,
        verified=evidence_of(sets) if flags.again else "",
        stated_by="the caller states, by --mode," if flags.mode else stated_by(sets),
        candidates=read_candidates(flags.candidates) if flags.candidates else None,
        choices=read_choices(flags.choices) if flags.choices else (),
        groups=labels,
        with_curve=True,
        neighbors=neighbors_of_run(sets[0]),
    )
    files = tuple(
        JudgedFile(str(one.path), one.digest, len(one.predictions), tuple(describe(one).splitlines())) for one in sets
    )
    return dataclasses.replace(result, judged=Judged(files), seeds_stated=all(found.seeds_stated for found in sets))


def audit_rankings(flags: argparse.Namespace) -> AuditResult:
    """Audit the files of rankings (candidate sentences by score, for each recording) that the flags name."""
    for name in ("groups", "choices"):
        if value := getattr(flags, name):
            raise UserError(f"--{name}={value}: is for decoded text, not for rankings; leave --{name} out.")
    endpoint = "top-5" if flags.endpoint == BLEU_1 else flags.endpoint
    rank_endpoints(endpoint)
    sets: list[RankingSet] = []

    def read(path: Path) -> list[Ranking]:
        if not is_rankings(path):
            raise UserError(f"{path}: has no rankings, but {flags.eeg} has; give only rankings, or only texts.")
        check_unchanged(path)
        sets.append(read_rankings(path))
        print(describe_rankings(sets[-1]))
        return sets[-1].rows

    if flags.control:
        conditions = read_conditions(flags.eeg, flags.control, read, flags.arm)
    else:
        conditions = select_arms(read(flags.eeg))
    name, *_ = conditions
    rows = conditions.pop(name)
    result = audit(
        rows,
        conditions,
        options=options_of(flags, name, conditions, sets[0].header),
        endpoint=endpoint,
        verified=evidence_of(sets) if flags.again else "",
        stated_by=stated_by(sets),
    )
    files = tuple(JudgedFile(str(found.path), file_digest(found.path), len(found.rows)) for found in sets)
    return dataclasses.replace(result, judged=Judged(files))


def evidence_of(sets: Sequence[PredictionSet | RankingSet]) -> str:
    """Decode the rows of the files again, with JAX, and return the evidence of their origin as a sentence."""
    from eeg2text_jax.finished_run import decoded_again

    evidence, *_ = [decoded_again(found) for found in sets]  # checks every file
    return evidence


def stated_by(sets: Sequence[PredictionSet | RankingSet]) -> str:
    """Return a phrase on who states the mode (free-running or not): a workdir with the files' digests, or the files."""
    return "the workdir, whose digests agree, states" if all(map(is_of_its_run, sets)) else "the file states"


def endpoints_of(flags: argparse.Namespace) -> list[Endpoint]:
    """Return the endpoint (score) that decides, then secondary ones; JAX and weights are loaded only if one needs them.

    Raises UserError for an unknown endpoint, one without its encoder or judge, or a flag that no endpoint uses.
    """
    names = [flags.endpoint, *filter(None, flags.secondary.split(","))]
    metrics = [named(name, "--secondary" if i else "--endpoint").metric for i, name in enumerate(names)]
    if len(set(names)) < len(names):
        raise UserError(
            f"--secondary={flags.secondary}: the endpoint {max(names, key=names.count)!r} is given twice; expected "
            "each endpoint once in --endpoint and --secondary together; remove one mention."
        )
    makers = makers_of(
        metrics, flags.encoder, flags.judge, layer=flags.layer, rescale=flags.rescale, truncate=flags.truncate
    )
    return endpoints(names, makers)


def make_parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        "eeg2text audit", description=__doc__, epilog=EPILOG, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    add = parser.add_argument
    add("--eeg", required=True, type=Path, metavar="FILE", help="predictions from EEG")
    add("--control", type=Path, nargs="+", action="extend", default=[], metavar="FILE", help="predictions of a control")
    add_options(add)
    add("--json", type=epath.Path, metavar="OUT", help="write all numbers of the audit to this file")
    add("--html", type=epath.Path, metavar="OUT", help="write a self-contained report to this file")
    margins = ", ".join(f"{name} {found.margin:g}" for name, found in ENDPOINTS.items())
    add("--endpoint", default=BLEU_1, help=f"the score that decides: {', '.join(ENDPOINTS)} ({BLEU_1})")
    add("--secondary", default="", metavar="NAMES", help="further endpoints to compute, separated by commas")
    add("--encoder", metavar="NAME", help="text encoder of bertscore-f and similarity: a checkpoint, or minilm")
    add("--layer", type=int, help="layer of the encoder that bertscore-f compares; default: the best one known")
    add("--rescale", metavar="TSV", help="rescale bertscore-f by bert-score's baseline file for the encoder")
    add("--judge", metavar="DIR", help="for lattescore-mean: the folder DIR/judge of `eeg2text judge`")
    add("--truncate", action="store_true", help="lattescore-mean cuts pairs longer than the judge's input")
    add("--margin", type=float, help=f"equivalence margin in points of the endpoint ({margins})")
    add("--resamples", type=int, default=10_000, help="permutations and bootstrap draws (10000)")
    add("--seed", type=int, default=0, help="random seed of permutations and bootstrap draws (0)")
    add("--mode", type=mode_name, choices=MODES, help="mode to judge, or the mode of a file that does not state it")
    add("--arm", help="training condition to judge, if a file has several")
    columns = "subject, task, n_words or time (recording, onset, duration, order)"
    add("--meta", type=Path, metavar="CSV", help=f"references with {columns}, if the files lack them")
    groups = "columns of the file or of --meta, separated by commas, with the class, topic or story of each reference; "
    groups += "the audit then tests whether the text tells more than these groups"
    add("--groups", metavar="COLUMNS", default="", help=groups)
    add("--train-text", type=Path, metavar="FILE", help="training sentences, one per line")
    proof = "a sentence or URL on how it is known that no target reached the decoder; it is printed as the authors' "
    proof += "statement, and overrides no finding in the outputs"
    add("--proof", metavar="TEXT", type=str, default="", help=proof)
    deciding = "controls that decide, separated by commas; default: all but time_reversed, phase_randomized and the "
    deciding += "controls of time, which answer other questions"
    add("--deciding", metavar="NAMES", default="", help=deciding)
    again = "decode again with the checkpoints in the workdir of the files and compare every row, as evidence that the "
    again += "run wrote the files"
    add("--again", action="store_true", help=again)
    add("--candidates", type=Path, metavar="FILE", help="candidate scores for retrieval (JSON lines)")
    add(
        "--choices",
        type=Path,
        metavar="FILE",
        help="the sentences, one per line, that a decoder of sentences chose from",
    )
    add(
        "--common",
        action="store_true",
        help="judge only the samples that all files have, instead of refusing files with different samples",
    )
    add(
        "--stratum-size",
        type=int,
        default=STRATUM_SIZE,
        help=f"fewest sentences in a stratum of one task and similar length ({STRATUM_SIZE})",
    )
    return parser


def parse(argv: list[str]) -> argparse.Namespace:
    """Return the arguments. Raises UserError for a value out of range, or a missing output folder."""
    flags = make_parser().parse_args(argv)
    given = any(argument.split("=")[0] == "--proof" for argument in argv)
    flags.proof = checked_proof(flags.proof or (" " if given else ""))
    if flags.margin is not None and not 0 < flags.margin < float("inf"):
        raise UserError(f"--margin={flags.margin}: expected a number above 0, in points of the endpoint, such as 1.0.")
    for name, least, most in (("resamples", 100, 1_000_000), ("stratum_size", 2, None), ("seed", 0, None)):
        value = getattr(flags, name)
        if value < least or (most and value > most):
            bounds = f"from {least} to {most}" if most else f"of at least {least}"
            raise UserError(f"--{name.replace('_', '-')}={value}: expected a whole number {bounds}.")
    for out in (flags.json, flags.html):
        if out and not out.parent.is_dir():
            raise UserError(f"{out}: there is no folder {out.parent}; make it first.")
    return flags
