"""`eeg2text audit`: judge from predictions files whether a model uses the EEG."""

import argparse
import dataclasses
import datetime
import json
import tomllib
from collections.abc import Collection, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from etils import epath

from eeg2text_jax.base.errors import UserError, did_you_mean
from eeg2text_jax.base.files import file_digest, write_text
from eeg2text_jax.data.splits.neighbors import high_neighbors
from eeg2text_jax.instrument.auditing.audit import audit, audit_files
from eeg2text_jax.instrument.auditing.notices import Judged, JudgedFile, checked_proof
from eeg2text_jax.instrument.auditing.result import AuditResult, result_text
from eeg2text_jax.instrument.auditing.table import Endpoint, function_endpoint
from eeg2text_jax.instrument.auditing.verdict import EXIT_STATUS
from eeg2text_jax.instrument.metrics.metric_names import ENCODED, ENDPOINTS, JUDGED, WORDS_ENDPOINT
from eeg2text_jax.instrument.predictions.file import MODES, Prediction, PredictionSet, mode_name
from eeg2text_jax.instrument.predictions.packed import read_text
from eeg2text_jax.instrument.predictions.rankings import (
    Ranking,
    RankingSet,
    describe_rankings,
    is_rankings,
    read_choices,
    read_rankings,
)
from eeg2text_jax.instrument.predictions.read import add_options, check_given_once, describe, read_any
from eeg2text_jax.instrument.predictions.read import options_of as reading
from eeg2text_jax.instrument.predictions.selection import (
    LIKELY,
    account,
    groups_of,
    join_metadata,
    likely_groups,
    read_conditions,
    select_arms,
    ten_rows,
)
from eeg2text_jax.instrument.workdir import check_unchanged, is_of_its_run, neighbors_of_run
from eeg2text_jax.judge.model_metrics import endpoints, makers_of

if TYPE_CHECKING:  # the import takes seconds, which only --again needs
    from eeg2text_jax.runs.decode_again import Again

EPILOG = f"""
The file given with --eeg may have several evaluation conditions, as predictions.jsonl of a run has: then the
predictions from EEG are judged against the predictions of the same arms under the other conditions. Without a control,
the predictions are judged against other sentences. For a file of rankings (rankings.jsonl), --endpoint is top-5, top-1
or rank. `eeg2text read` shows what would be judged; its options (--columns, ...) work here, too.

exit status: {", ".join(f"{status} {verdict}" for verdict, status in EXIT_STATUS.items())}; 2 bad input"""
PLANNED = ("endpoint", "margin", "deciding", "groups", "mode", "common")  # options that a plan fixes


def main(argv: list[str]) -> int:
    flags = parse(argv)
    if flags.write_plan:
        write_plan(flags)
        return 0
    plan = read_plan(flags) if flags.plan else ""
    result = audit_rankings(flags, plan) if is_rankings(flags.eeg) else audit_texts(flags, plan)
    result = dataclasses.replace(result, judged=result.judged.dated(["eeg2text", "audit", *argv]))
    more = f"-v; the report, with every row: {flags.html or '--html=report.html'}"
    print(result_text(result, verbose=flags.verbose, more=more))
    if flags.json:
        write_text(flags.json, json.dumps(result.to_json(), indent=1, ensure_ascii=False) + "\n")
    if flags.html:
        from eeg2text_jax.instrument.auditing.report import write_report

        write_report(result, flags.html)
    return result.exit_status


def write_plan(flags: argparse.Namespace) -> None:
    values = {name: getattr(flags, name) for name in PLANNED if getattr(flags, name) not in (None, "", False)}
    lines = [f"written = {datetime.date.today()}", *(f"{name} = {json.dumps(v)}" for name, v in values.items())]
    write_text(flags.write_plan, "\n".join(["# A plan for `eeg2text audit --plan`.", *lines]) + "\n")
    print(f"wrote {flags.write_plan}; audit with --plan={flags.write_plan}")


def read_plan(flags: argparse.Namespace) -> str:
    """Set the options of a plan in `flags`; return a phrase that names it. Raises UserError if they disagree."""
    try:
        values = tomllib.loads(flags.plan.read_text(encoding="utf8"))
    except (OSError, ValueError) as error:
        raise UserError(f"{flags.plan}: cannot be read as a plan ({error}); make one with --write-plan.") from error
    written = values.pop("written", "an unknown day")
    if unknown := sorted(values.keys() - set(PLANNED)):
        raise UserError(f"{flags.plan}: has {unknown[0]!r}; expected written, {', '.join(PLANNED)}.")
    kinds: dict[str, tuple[Any, str]] = {"mode": (str, f"text, one of {', '.join(MODES)}")}
    kinds |= {"common": (bool, "true or false"), "margin": (int | float, "a number above 0")}
    for name, value in values.items():
        kind, expected = kinds.get(name, (str, "text"))
        if not isinstance(value, kind) or (name == "mode" and value not in MODES):
            raise UserError(f"{flags.plan}: {name} is {value!r}; expected {expected}.")
    defaults = parse(["--eeg", str(flags.eeg)])
    for name in PLANNED:
        planned, current = values.get(name, getattr(defaults, name)), getattr(flags, name)
        if current not in (getattr(defaults, name), planned):
            raise UserError(f"--{name}={current}: the plan {flags.plan} has {planned!r}; leave --{name} out.")
        setattr(flags, name, planned)
    check_ranges(flags)
    return f"fixed by {flags.plan.name} of {written} (SHA-256 {file_digest(flags.plan)[:12]})"


def stated_options(flags: argparse.Namespace, controls: Collection[str], plan: str) -> dict[str, Any]:
    """Return the options of the audit that the flags state, for texts and rankings alike.

    Raises UserError if a name in `--deciding` is not a control of the files.
    """
    deciding = [name.strip() for name in flags.deciding.split(",")] if flags.deciding else None
    if unknown := [name for name in deciding or () if name not in controls]:
        raise UserError(
            f"--deciding={flags.deciding}: {unknown[0]!r} is not a control of these files; expected some of "
            f"{', '.join(controls)}."
        )
    stated = {"margin": flags.margin, "common": flags.common, "proof": flags.proof, "deciding": deciding, "plan": plan}
    return stated | {"training_text": read_text(flags.train_text).split("\n") if flags.train_text else None}


def audit_texts(flags: argparse.Namespace, plan: str) -> AuditResult:
    sets: list[PredictionSet] = []

    def read(path: Path) -> list[Prediction]:
        check_unchanged(path)
        sets.append(read_any(path, mode=flags.mode, groups=groups or LIKELY, **reading(flags)))
        print(describe(sets[-1]))
        rows = sets[-1].predictions
        return join_metadata(rows, flags.meta, groups) if flags.meta else rows

    groups = flags.groups.split(",") if flags.groups else []
    endpoint, *secondary = endpoints_of(flags.endpoint)
    for note in check_given_once([flags.eeg, *flags.control], flags.reference):
        print(note)
    conditions = read_conditions(flags.eeg, flags.control, read, flags.arm)
    likely = [] if groups else likely_groups(sets[0])
    labels, notes = groups_of(sets[0], groups or likely, flags.meta)
    if likely:
        notes.append(f"grouped by {', '.join(likely)}, chosen by its name; --groups=COLUMN takes another column")
    for note in notes:
        print(f"{note}.")
    again = about_again(decoded_again(sets), flags) if flags.again else {}
    options = {"mode": flags.mode, "endpoint": endpoint, "secondary": secondary}
    options["stated_by"] = "--mode says" if flags.mode else stated_by(sets)
    options["choices"] = read_choices(flags.choices) if flags.choices else ()
    options |= stated_options(flags, [*conditions][1:], plan)
    options |= again or {"warnings": high_neighbors(neighbors_of_run(sets[0]))}
    return audit_files(sets, conditions, labels, **options)


def audit_rankings(flags: argparse.Namespace, plan: str) -> AuditResult:
    for name in ("groups", "choices"):
        if value := getattr(flags, name):
            raise UserError(f"--{name}={value}: is for decoded text, not for rankings; leave --{name} out.")
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
    again = about_again(decoded_again(sets), flags) if flags.again else {}
    options = {"recording": str(sets[0].header.get("recording", "eeg")), **stated_options(flags, conditions, plan)}
    endpoint = None if flags.endpoint == WORDS_ENDPOINT else flags.endpoint
    result = audit(rows, conditions, name=name, endpoint=endpoint, stated_by=stated_by(sets), **options | again)
    files = tuple(JudgedFile(str(rankings.path), file_digest(rankings.path), len(rankings.rows)) for rankings in sets)
    return dataclasses.replace(result, judged=Judged(files))


def decoded_again(sets: Sequence[PredictionSet | RankingSet]) -> "Again":
    """Decode the rows of all files again, with JAX; return what it shows about the first file and about the others."""
    from eeg2text_jax.runs.decode_again import decode_again

    first, *others = map(decode_again, sets)
    said = {name: getattr(first.provenance, name) for name in ("checked", "not_checked")}
    for file, again in zip(sets[1:], others, strict=True):
        for name in said:
            said[name] += tuple(f"{file.path.name}: {line}" for line in getattr(again.provenance, name))
    return first._replace(provenance=dataclasses.replace(first.provenance, **said))


def about_again(again: "Again", flags: argparse.Namespace) -> dict[str, Any]:
    """Return the audit's options about rows that were decoded again; `--train-text` overrides the run's train part."""
    facts = {name: value for name, value in again.facts.items() if name != "training_text" or not flags.train_text}
    return {"decoded": again.provenance, **facts}


def stated_by(sets: Sequence[PredictionSet | RankingSet]) -> str:
    """Return who states whether the mode is free-running: a workdir with the files' digests, or the files."""
    return "the workdir, whose digests agree, states" if all(map(is_of_its_run, sets)) else "the file states"


def endpoints_of(text: str) -> list[Endpoint]:
    """Return the endpoints of `--endpoint`: the one that decides, then further ones.

    JAX and weights are loaded only if an endpoint needs them. Raises UserError for an endpoint that is unknown, given
    twice, or without its encoder or judge.
    """
    parts = text.split(",")
    if len({*parts}) < len(parts):
        raise UserError(f"--endpoint={text}: an endpoint is given twice; expected each one once.")
    models = {name: model for name, _, model in (one.partition(":") for one in parts) if name in ENDPOINTS or not model}
    if unknown := [name for name in models if name not in ENDPOINTS]:
        raise UserError(f"--endpoint={unknown[0]}: there is no such endpoint; {did_you_mean(unknown[0], ENDPOINTS)}")
    encoder, judge = (
        next((model for name, model in models.items() if ENDPOINTS[name].metric in family), "")
        for family in (ENCODED, JUDGED)
    )
    metrics = [ENDPOINTS[name].metric for name in models]
    makers = makers_of(metrics, encoder, judge, spelled="--endpoint=NAME:{}")
    made = dict(zip(models, endpoints([*models], makers), strict=True))
    return [made.get(one.partition(":")[0]) or function_endpoint(one) for one in parts]


def make_parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        "eeg2text audit", description=__doc__, epilog=EPILOG, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    add = parser.add_argument_group("what is judged").add_argument
    add("--eeg", required=True, type=Path, metavar="FILE", help="predictions from EEG")
    add("--control", type=Path, nargs="+", action="extend", default=[], metavar="FILE", help="predictions of a control")
    # Of the options of `eeg2text read`, help shows one.
    add_options(lambda name, **of: add(name, **(of if name == "--reference" else of | {"help": argparse.SUPPRESS})))
    add("--mode", type=mode_name, choices=MODES, help="mode to judge, or the mode of a file that does not state it")
    add("--arm", help="training condition to judge, if a file has several")
    add("--common", action="store_true", help="judge the samples that all files have, if files have different samples")
    add = parser.add_argument_group("what is known of it").add_argument
    columns = "subject, task, n_words or time (recording, onset, duration, order)"
    add("--meta", type=Path, metavar="CSV", help=f"references with {columns}, if the files lack them")
    groups = "columns of the file or of --meta, separated by commas, with the class, topic or story of each reference: "
    groups += "does the text tell more than these groups?"
    add("--groups", metavar="COLUMNS", default="", help=groups)
    add("--train-text", type=Path, metavar="FILE", help="training sentences, one per line")
    add("--choices", type=Path, metavar="FILE", help="the sentences, one per line, that the decoder chose from")
    proof = "a sentence or URL on how it is known that no target reached the decoder; it is printed as the authors' "
    proof += "statement, and overrides no finding in the outputs"
    add("--proof", metavar="TEXT", type=str, default="", help=proof)
    again = "decode again with the checkpoints in the workdir of the files and compare every field of every row; what "
    again += "else was checked and what was not is listed"
    add("--again", action="store_true", help=again)
    add = parser.add_argument_group("how it is decided").add_argument
    endpoint = f"the score that decides, and further ones after commas: {', '.join(ENDPOINTS)} or MODULE:FUNCTION "
    endpoint += f"({WORDS_ENDPOINT}); bertscore-f:ENCODER and similarity:ENCODER take a checkpoint or minilm, "
    endpoint += "lattescore-mean:DIR the folder DIR/judge of `eeg2text judge`"
    add("--endpoint", default=WORDS_ENDPOINT, metavar="NAMES", help=endpoint)
    margins = ", ".join(f"{name} {entry.margin:g}" for name, entry in ENDPOINTS.items())
    add("--margin", type=float, help=f"smallest difference that matters, in points of the endpoint ({margins})")
    deciding = "controls that decide, separated by commas; default: all but time_reversed, phase_randomized and the "
    deciding += "controls of time, which answer other questions"
    add("--deciding", metavar="NAMES", default="", help=deciding)
    add("--plan", type=Path, metavar="TOML", help="take these choices from a plan, and say so in the verdict")
    add("--write-plan", type=epath.Path, metavar="TOML", help="write the choices to a plan, before looking at results")
    add = parser.add_argument_group("what is written").add_argument
    add("--json", type=epath.Path, metavar="OUT", help="write all numbers of the audit to this file")
    add("--html", type=epath.Path, metavar="OUT", help="write a self-contained report to this file")
    add("-v", "--verbose", action="store_true", help="print all figures and notes")
    return parser


def parse(argv: list[str]) -> argparse.Namespace:
    """Return the arguments. Raises UserError for a value out of range."""
    flags = make_parser().parse_args(argv)
    flags.proof = checked_proof(flags.proof)
    check_ranges(flags)
    return flags


def check_ranges(flags: argparse.Namespace) -> None:
    margin = flags.margin
    if margin is not None and (not isinstance(margin, int | float) or not 0 < margin < float("inf")):
        raise UserError(f"--margin={margin}: expected a number above 0, in points of the endpoint, such as 1.0.")


def read(argv: Sequence[str]) -> int:
    """`eeg2text read`: what `audit` would judge and why, with ten rows; nothing is scored."""
    parser = argparse.ArgumentParser("eeg2text read", description=read.__doc__)
    add = parser.add_argument
    add("files", nargs="+", type=epath.Path, metavar="FILE", help="predictions from EEG, then those of controls")
    add_options(add)
    add("--mode", type=mode_name, choices=MODES, help="mode to judge, or the mode of a file that does not state it")
    add("--arm", help="training condition to judge, if a file has several")
    flags = parser.parse_args(argv)
    sets: list[PredictionSet] = []

    def rows_of(path: epath.Path) -> list[Prediction]:
        check_unchanged(path)
        sets.append(read_any(path, mode=flags.mode, groups=LIKELY, **reading(flags)))
        print("\n".join(account(sets[-1])))
        return sets[-1].predictions

    for note in check_given_once(flags.files, flags.reference):
        print(note)
    if ranked := [path for path in flags.files if is_rankings(path)]:
        for path in ranked:
            print(describe_rankings(read_rankings(path)))
        return 0
    eeg, *controls = flags.files
    name, *others = (conditions := read_conditions(eeg, controls, rows_of, flags.arm))
    against = ", ".join(f"{other!r} ({len(conditions[other])})" for other in others) or "other sentences' references"
    print(f"judged: {name!r} ({len(conditions[name])} rows) against {against}")
    for row in ten_rows(sets[0]):
        print(" | ".join(row))
    return 0


# Made-up decodes of made-up sentences: 50 sentences, four subjects, 200 rows in each file.
FILES = Path(__file__).parent / "example_files"


def example(argv: list[str]) -> int:
    """Two files of decoded text to try the audit on, and their verdict."""
    parser = argparse.ArgumentParser(prog="eeg2text example", description=example.__doc__)
    parser.add_argument("folder", nargs="?", type=Path, default=Path("example"), help="where to put them (example)")
    folder = parser.parse_args(argv).folder
    paths = {name: folder / f"{name}.csv" for name in ("eeg", "noise")}
    for path in paths.values():
        text = (FILES / path.name).read_text(encoding="utf8")
        if path.exists() and path.read_text(encoding="utf8") != text:
            raise UserError(f"{path}: is not the example file of this version; name another folder, or move it away.")
        folder.mkdir(parents=True, exist_ok=True)
        write_text(path, text)
    options = ["--eeg", str(paths["eeg"]), "--control", str(paths["noise"]), f"--html={folder / 'report.html'}"]
    print(f"$ eeg2text audit {' '.join(options)}", flush=True)
    return main(options)
