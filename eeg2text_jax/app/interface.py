"""The gradio page: upload fields, a table of the rows read, verdict, figures, report, and published outputs."""

import ipaddress
import os
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from eeg2text_jax.app import jobs, markup
from eeg2text_jax.imports import library

KEPT = 600  # seconds after which an upload is deleted
WAITING = 20  # most jobs that wait
WIDTHS = ["190px", "150px", *["110px"] * 8]  # CSS widths of the columns in the table of published outputs
GUESSED = "as recognised"
MODES = {"not stated": None, "free running: no target reached the decoder": "free_running"}
MODES["teacher forced: every token was predicted from the true ones before it"] = "teacher_forced"
ABOUT = """# Does the model use the brain signals?

Add decoded text: one file of any layout with references and predictions, and, if there is one, a file of a control
(the same model fed noise or another sentence's recording). Files are judged where this page runs, one after the other,
and removed.
"""


def uploads(eeg: str | None, control: str | None, references: str | None) -> dict[str, str | None]:
    return {"eeg": eeg, "control": control, "references": references}


def request_of(reference: str, prediction: str, mode: str, proof: str = "") -> dict[str, Any]:
    chosen = [name for name in (reference, prediction) if name and name != GUESSED]
    return {"columns": chosen if len(chosen) == 2 else None, "mode": MODES.get(mode), "proof": proof}


def visitor_of(visit: Any) -> str:
    """Return the address of a `gradio.Request`; of an IPv6 address the network, which one visitor has whole."""
    try:
        address = ipaddress.ip_address(visit.client.host)
    except (AttributeError, TypeError, ValueError):  # no client
        return ""
    return str(address if address.version == 4 else ipaddress.ip_network((address, 64), strict=False))


def build() -> Any:
    """Return the page that judges uploads, as `gradio.Blocks`. Raises UserError if gradio is not installed."""
    os.environ.setdefault("GRADIO_ANALYTICS_ENABLED", "False")
    gr = library("gradio", "app")
    look, judge, forget = _actions(gr)
    with gr.Blocks(title="EEG-to-text, judged", delete_cache=(60, KEPT), analytics_enabled=False) as page:
        gr.Markdown(ABOUT)
        with gr.Row():
            with gr.Column(scale=3, min_width=320):
                choices, proof, options = _choices(gr)
                button = gr.Button("Judge", variant="primary", elem_id="judge")
                result = gr.HTML(elem_id="verdict")
                read = gr.HTML(elem_id="read")
                report = gr.HTML(elem_id="report")
            with gr.Column(scale=2, min_width=320):
                gr.Markdown("### Published outputs, judged by the same program\nClick a heading to sort.")
                headings, rows = field_table(field_page().read_text("utf8") if field_page().is_file() else "")
                looks = {"elem_id": "field", "max_height": 700, "column_widths": WIDTHS, "wrap": True}
                gr.Dataframe(rows, headers=headings, interactive=False, **looks)
        eeg, control, references, reference, prediction, mode = choices
        # Jobs take turns in `jobs.Turns`, by visitor; gradio's own queue knows no visitors.
        together = {"concurrency_limit": WAITING, "concurrency_id": "job", "show_progress": "hidden"}
        shows = [read, reference, prediction, result, report, options]
        # With "always_last", a change in the middle of a job starts a job with the newest choices behind it.
        latest = {"trigger_mode": "always_last", **together}
        # A choice of columns is of one file: it goes before another file is read, never afterwards.
        fresh = gr.on([eeg.upload, eeg.clear], forget, None, [reference, prediction], queue=False, api_name=False)
        fresh.then(look, choices, shows, api_name="look", **latest)
        changes = [control.change, references.change, mode.change, reference.input, prediction.input]
        gr.on(changes, look, choices, shows, api_name=False, **latest)
        proof.input(lambda: ("", ""), None, [result, report], queue=False, api_name=False)
        button.click(judge, [*choices, proof], [result, report], api_name="judge", **together)
    return page


def _choices(gr: Any) -> tuple[list[Any], Any, Any]:
    """Add the input fields; return the fields that every job reads, the text field `proof`, the options accordion."""
    with gr.Row():
        eeg = gr.File(label="Predictions", elem_id="eeg", height=140, min_width=260)
        control = gr.File(label="Control, if any", elem_id="control", height=140, min_width=260)
    with gr.Accordion(markup.OPTIONS, open=False) as options:
        gr.Markdown("What `--reference`, `--mode`, `--columns` and `--proof` say at the command line.")
        references = gr.File(label="References", elem_id="references", height=120)
        mode = gr.Radio(list(MODES), value="not stated", label="How the text was decoded", elem_id="mode")
        # A client of the API may name a column before the file is read.
        column = {"value": GUESSED, "min_width": 150, "allow_custom_value": True}
        with gr.Row():
            reference = gr.Dropdown([GUESSED], label="Column of the references", elem_id="true_column", **column)
            prediction = gr.Dropdown([GUESSED], label="Column of the predictions", elem_id="said_column", **column)
        proof = gr.Textbox(label="How it is known that no target reached the decoder", elem_id="proof")
    return [eeg, control, references, reference, prediction, mode], proof, options


def _actions(gr: Any) -> tuple[Callable[..., Iterator], Callable[..., Iterator], Callable[[], tuple]]:
    """Return event handlers: `look` reads changed files, `judge` judges them, `forget` removes choices of columns.

    `look` changes what the columns can be, but never a choice: the visitor may have chosen since the job began.
    """
    keep = gr.update()

    def forget() -> tuple:
        return tuple(gr.update(choices=[GUESSED], value=GUESSED) for _ in range(2))

    def look(eeg, control, references, reference, prediction, mode, visit: gr.Request) -> Iterator[tuple]:
        if not eeg:
            yield "", keep, keep, "", "", keep
            return
        request = request_of(reference, prediction, mode)
        for state in jobs.run("look", uploads(eeg, control, references), request, visitor=visitor_of(visit)):
            if isinstance(state, jobs.Progress):
                yield markup.progress(state), keep, keep, "", "", keep
                continue
            columns = [GUESSED, *dict.fromkeys(state.found["columns"])]
            selects = [gr.update(choices=columns, visible=len(columns) > 1)] * 2
            if "refused" in state.found:  # open the options: a choice there may make the file readable
                yield markup.refusal(state.found), *selects, "", "", gr.update(open=True)
            else:
                yield markup.reading(state.found), *selects, "", "", keep

    def judge(
        eeg, control, references, reference, prediction, mode, proof, visit: gr.Request
    ) -> Iterator[tuple[str, str]]:
        request = request_of(reference, prediction, mode, proof)
        for state in jobs.run("judge", uploads(eeg, control, references), request, visitor=visitor_of(visit)):
            if isinstance(state, jobs.Progress):
                yield markup.progress(state), ""
            elif "refused" in state.found:
                yield markup.refusal(state.found), ""
            else:
                yield markup.verdict(state.found), markup.report(state.report)

    return look, judge, forget


def serve(host: str, port: int) -> None:
    """Serve the page until interrupted; uploads and jobs are in a folder that is removed at the end."""
    with tempfile.TemporaryDirectory(prefix="eeg2text-app-") as folder:
        os.environ["GRADIO_TEMP_DIR"] = tempfile.tempdir = folder  # jobs copy uploads into `tempdir`
        page = build()
        gr = library("gradio", "app")
        fonts = {"font": ["system-ui", "sans-serif"], "font_mono": ["ui-monospace", "monospace"]}
        page.queue(max_size=WAITING).launch(
            server_name=host,
            server_port=port,
            share=False,
            quiet=True,
            prevent_thread_lock=True,
            max_file_size=jobs.BYTES,
            blocked_paths=[str(Path.home())],
            theme=gr.themes.Default(**fonts),
            css=markup.CSS,
            footer_links=[],
            ssr_mode=False,
        )
        print(f"Running on http://{host}:{port}, until Ctrl-C.", flush=True)
        try:
            page.block_thread()
        finally:
            page.close()


COLUMNS = ("set", "verdict", "input", "mode, file says", "rows", "sentences", "BLEU-1", "content", "p", "difference")


def field_page() -> Path:
    """Return the path of `field.md`, on published outputs: beside this module in a wheel, in `docs` of a clone."""
    here = Path(__file__).parent
    return next((place for place in (here / "field.md", here.parents[1] / "docs/field.md") if place.is_file()), here)


def field_table(page: str) -> tuple[list[str], list[list[str | float | None]]]:
    """Return headings and rows (cells by `figure`) of the first Markdown table with columns `set` and `verdict`."""
    lines = (line.strip().removeprefix("|").removesuffix("|") for line in page.splitlines() if line.startswith("|"))
    rows = [[cell.strip().strip("`*") for cell in line.split("|")] for line in lines]
    start = next((i for i, row in enumerate(rows) if {"set", "verdict"} <= set(row)), None)
    if start is None:
        return [], []
    head = rows[start]
    chosen = [head.index(name) for name in COLUMNS if name in head]
    body = []
    for row in rows[start + 2 :]:
        if len(row) != len(head) or {"set", "verdict"} <= set(row):
            break
        body.append([figure(row[i]) for i in chosen])
    return ["p, at most" if head[i] == "p" else head[i] for i in chosen], body


def figure(cell: str) -> str | float | None:
    """Return a table cell as a float ("0.5", or a bound such as "< 0.001"), None (empty or a dash), or its text."""
    try:
        return float(cell.removeprefix("< "))
    except ValueError:
        return None if cell in ("", "–") else cell
