"""Parts of the web page as HTML. Texts of visitors are escaped, and a report is framed without scripts."""

import base64
import html
import re
from collections.abc import Mapping, Sequence
from typing import Any

from eeg2text_jax.app.jobs import Progress

OPTIONS = "References in a file of their own, mode, columns, proof"  # heading of the page's section of options
UNPROVEN = "content of unproven origin"
LABELS = {"eeg": "Predictions", "control": "Control", "references": "References"}
# Patterns of command-line options in messages; `FIELDS` maps each to the words for its counterpart on the page.
COLUMNS = r"--columns=(?:'[^']*'|[^\s;.]+)"
NAMED = (
    r"(?:name (?:it|them|both|one|two|(?:both|the) columns) with|set|"
    r"give two numbers, or two names if line 1 is a header, with) "
)
FIELDS = {
    NAMED + COLUMNS: f"choose the columns under “{OPTIONS}”",
    COLUMNS: "the columns chosen",
    r"give (?:its references|these|their references) with --reference=FILE": f"add its references under “{OPTIONS}”",
    r"leave --reference out": "remove the file of references",
    r"--reference(?:=FILE)?": "the file of references",
    r",? (?:or |and )?(?:say|set) (?:--format=\w+[^.;]*|whether this (?:line )?is [^.;]*)": "",
    r" \(REFERENCE is a column of the file of references, PREDICTION of the file of predictions\)": "",
    r",? such as --columns=.*": "",
    r"say --id=.*": "say with the command `eeg2text audit` how to join them",
    r"with --mode=free_running or --proof, or show it with --again for a run of eeg2text": "with the mode or a proof",
    r"--mode(?:=\w+)?": "the mode",
    r"--proof(?:='[^']*')?": "the proof",
    r"--groups=COLUMN": "a column of groups in the file",
    r"; see `eeg2text score --help` for the layouts": "",
}
CSS = """
.judged { border-left: 6px solid #D55E00; padding: .6rem 1rem; background: rgba(128, 128, 128, .08); }
.judged.good { border-color: #009E73; } .judged.open { border-color: #8A8A8A; }
.judged b { font-size: 1.5rem; }
.scroll { overflow-x: auto; max-width: 100%; }
.scroll table { border-collapse: collapse; font-size: 14px; margin: .5rem 0; }
.scroll td, .scroll th { padding: .25rem .6rem; text-align: left; vertical-align: top; border-bottom: 1px solid #8884; }
.scroll td { overflow-wrap: break-word; min-width: 4.5rem; }
@media (max-width: 600px) {
  .judged b { font-size: 1.2rem; }
  .scroll td, .scroll th { padding: .2rem; font-size: 12px; min-width: 3rem; }
}
.refused { border-left: 6px solid #a3271f; padding: .6rem 1rem; }
iframe.report { width: 100%; height: 70vh; border: 1px solid #8884; background: #fff; }
"""


def refusal(found: Mapping[str, Any]) -> str:
    return f'<div class="said refused" role="alert">{text(on_page(found["refused"]), 600)}</div>'


def on_page(sentence: str) -> str:
    """Replace the options and file roles in a command-line message by the fields and labels of the page."""
    for option, field in FIELDS.items():
        sentence = re.sub(option, field, sentence)
    sentence = re.sub(r"[;,] [^;,]*--\w+[^;]*?(?=;|\.$|$)", "", sentence)  # what the page has no field for
    sentence = sentence if sentence.endswith((".", "?")) else f"{sentence}."
    return re.sub(r"^(eeg|control|references)(?=[:,] )", lambda role: LABELS[role[0]], sentence)


def progress(state: Progress) -> str:
    return f'<p class="said" role="status">{text(state.line)} ({state.seconds:.0f} s)</p>'


def reading(found: Mapping[str, Any]) -> str:
    """Return the worker's answer to `look` as HTML: notes on how the files were read, and some rows."""
    heads = ["file", "subject", "condition", "reference", "prediction"]
    told = [i for i in range(len(heads)) if i > 2 or {row[i] for row in found["examples"]} - {"unknown"}]
    examples = table([[row[i] for i in told] for row in (heads, *found["examples"])])  # narrow screens have little room
    lines = "".join(f"<p>{text(on_page(line), 2000)}</p>" for line in found["said"])
    return f'<div class="said"><h3>What was read</h3>{lines}{examples}</div>'


def verdict(found: Mapping[str, Any]) -> str:
    """Return the worker's answer to `judge` as HTML: the verdict with what limits it, and tables."""
    limits = "".join(f"<li>{text(on_page(limit), 2000)}</li>" for limit in found["limits"])
    if found["verdict"].startswith(UNPROVEN):
        limits += f"<li>Mode and proof can be stated above, under <i>{OPTIONS}</i>; then judge again.</li>"
    tables = "".join(table(list(zip(*rows, strict=True))) for rows in found["tables"])  # a column of each condition
    return (
        f'<div class="said"><div class="judged {found["color"]}"><b>{text(found["verdict"])}</b>'
        f"<p>{text(on_page(found['sentence']), 2000)}</p><ul>{limits}</ul></div>"
        f"{tables}</div>"
    )


def verdict_first(rows: Sequence[Sequence[str]]) -> list[Sequence[str]]:
    """Return a table with its column `verdict` behind the first one, so that a narrow screen shows it."""
    if "verdict" not in rows[0]:
        return list(rows)
    place = rows[0].index("verdict")
    return [(row[0], row[place], *(cell for i, cell in enumerate(row) if i not in (0, place))) for row in rows]


def report(document: str) -> str:
    """Return HTML with a link that downloads the report, and the report in a frame that runs no scripts."""
    data = base64.b64encode(document.encode()).decode()
    return (
        f'<p><a id="keep" download="report.html" href="data:text/html;charset=utf-8;base64,{data}">Keep the report'
        f'</a></p><iframe class="report" title="Report" sandbox="" srcdoc="{html.escape(document)}"></iframe>'
    )


def table(rows: Sequence[Sequence[str]]) -> str:
    """Return rows of texts as an HTML table; the first row has the headings."""
    head, *body = rows
    cells = "".join(f"<tr>{''.join(f'<td>{text(cell)}</td>' for cell in row)}</tr>" for row in body)
    headings = "".join(f"<th>{text(cell)}</th>" for cell in head)
    return f'<div class="scroll"><table><tr>{headings}</tr>{cells}</table></div>'


def text(value: object, longest: int = 300) -> str:
    """Return a value as HTML-escaped text, cut after `longest` characters."""
    value = str(value)
    return html.escape(value if len(value) <= longest else f"{value[:longest]} ...")
