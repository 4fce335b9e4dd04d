"""The documentation builds without a warning, and what it tells people to type is what there is."""

import ast
import functools
import json
import os
import re
import runpy
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

import check_site
import draw_ideas
import pytest
import run_commands
import yaml
from example_files import write_files

import eeg2text_jax
import eeg2text_jax.data
from eeg2text_jax.base import packages
from eeg2text_jax.base.errors import UserError
from eeg2text_jax.commands.cli import COMMANDS, command
from eeg2text_jax.training.configuration import load_config, parse_config
from eeg2text_jax.training.sections import fields

ROOT = Path(__file__).parents[1]
SITE = runpy.run_path(str(ROOT / "tools/site/site_pages.py"))
PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").glob("*.md"))]
TAKE_CONFIG = {  # options of the commands that take a configuration
    "run": ["workdir", "folds"], "train": ["workdir"], "decode": ["workdir"], "prepare": ["out"], "preflight": None,
}  # fmt: skip


def snippets(language: str) -> list[tuple[str, str]]:
    block = re.compile(rf"^```{language}\n(.*?)^```", re.DOTALL | re.MULTILINE)
    return [(page.name, code) for page in PAGES for code in block.findall(page.read_text(encoding="utf8"))]


@pytest.fixture(scope="module")
def site(tmp_path_factory) -> Path:
    """The site, built without a warning."""
    for package in ("material", "mkdocstrings_handlers.python"):
        pytest.importorskip(package, reason="pip install -e '.[docs]'")
    folder = tmp_path_factory.mktemp("site")
    build = [sys.executable, "-m", "mkdocs", "build", "--strict", "-d", str(folder)]
    environment = {**os.environ, "NO_MKDOCS_2_WARNING": "1"}
    built = subprocess.run(build, cwd=ROOT, env=environment, capture_output=True, text=True)
    assert built.returncode == 0, built.stdout + built.stderr
    return folder


def test_the_site_has_its_pages_and_begins_with_the_readme(site):
    for page in (
        "configuration/index.html",
        "notebooks/own_eeg/index.html",
        "reference/index.html",
        "changelog/index.html",
    ):
        assert (site / page).is_file(), page
    reference = (site / "reference/index.html").read_text(encoding="utf8")
    assert "&gt;&gt;&gt;" in reference
    assert "<blockquote>" not in reference  # what Markdown makes of `>>>` outside of a section "Examples:"
    assert "Three ways in" in (site / "index.html").read_text(encoding="utf8")


def test_the_gallery_shows_five_answers(site):
    page = (site / "gallery/index.html").read_text(encoding="utf8")
    rows = re.findall(r'<td><a href="([a-z_]+\.html)">.*?<em>(.*?)</em></td>', page, re.DOTALL)
    answers = ["uses EEG: of the sentence", "equivalent to control", "uses EEG: not beyond its time, of its kind",
               "uses EEG: of its kind", "uses EEG"]  # fmt: skip
    assert [answer.partition(" (")[0].partition(", carried")[0] for _, answer in rows] == answers
    for name, answer in rows:
        assert answer.partition(" (")[0].partition(":")[0] in (site / "gallery" / name).read_text(encoding="utf8")


@pytest.mark.slow
def test_no_page_scrolls_sideways_or_has_a_dead_link(site, capsys):
    if not shutil.which("chromium"):
        pytest.skip("needs Chromium")
    assert check_site.main(site) == 0, capsys.readouterr().out


@pytest.mark.parametrize("page", [page for page in PAGES if page.parent.name == "docs"], ids=lambda page: page.name)
def test_a_page_begins_with_what_one_can_do_after_it(page):
    title, blank, first, *_ = page.read_text(encoding="utf8").splitlines()
    assert title.startswith("# ")
    assert blank == ""
    assert re.match(r"After this page you (can|know) ", first), first


@pytest.mark.parametrize("path", SITE["NOTEBOOKS"], ids=lambda path: path.stem)
def test_a_notebook_begins_so_too(path):
    assert re.match(r"# .+\n\nAfter this page you (can|know) ", SITE["notebook_page"](path))


def test_every_command_is_run_or_says_what_it_needs():
    found = [command for page in PAGES for command in run_commands.commands(page)]
    assert len(found) > 105
    for pattern, need, refusal in run_commands.NEEDS:
        assert any(command.needs[0] == need for command in found), f"no command needs {need} ({pattern}) any more"
        assert refusal, f"a command may refuse without naming {need}"
    shown = [command.line for command in found if command.output]
    assert shown[0] == "eeg2text example"
    assert len(shown) == 2
    assert "print(result.verdict)" in shown[1]  # README's Python


def test_every_script_that_a_page_names_is_there():
    named = {name for page in PAGES for name in re.findall(r"\btools/[\w/]+\.\w+", page.read_text(encoding="utf8"))}
    assert len(named) > 40
    assert [name for name in sorted(named) if not (ROOT / name).is_file()] == []


@pytest.mark.parametrize("name", ["README.md", "layouts.md"])
def test_quick_commands_of_a_page_run(name, tmp_path):
    """tools/site/run_commands.py runs those of all pages."""
    run_commands.make_texts(tmp_path)
    (page,) = [page for page in PAGES if page.name == name]
    quick = "(eeg2text (example|audit|read|score) (?!t5_)|eeg2text example|python -c)"
    found = [command for command in run_commands.commands(page) if re.match(quick, command.line)]
    assert len(found) == 3
    assert [run_commands.check(command, tmp_path, long=False) for command in found] == [""] * len(found)


def test_a_wrong_command_and_another_output_are_named(tmp_path):
    wrong = run_commands.Command("x.md", "eeg2text audit --eeg nowhere.csv")
    assert "status 2" in run_commands.check(wrong, tmp_path, long=False)
    script = run_commands.Command("x.md", "python tools/faults.py DIR --cases score --nothing=1")
    assert "unrecognized arguments" in run_commands.check(script, tmp_path, long=False)
    other = run_commands.Command("x.md", "eeg2text example", "VERDICT: another one\n")
    assert "where the page shows" in run_commands.check(other, tmp_path, long=False)


def test_a_program_that_is_not_installed_is_named(tmp_path, monkeypatch):
    (tmp_path / "bash").symlink_to(shutil.which("bash"))
    monkeypatch.setenv("PATH", str(tmp_path))
    missing = run_commands.Command("x.md", "datalad install ///labs/hasson/narratives")
    assert run_commands.check(missing, tmp_path, long=False) == run_commands.REFUSED


def test_version_and_date_of_the_release_agree():
    changes = (ROOT / "CHANGELOG.md").read_text(encoding="utf8")
    version, date = re.search(r"^## (\S+) - (\S+)$", changes, re.MULTILINE).groups()
    citation = yaml.safe_load((ROOT / "CITATION.cff").read_text(encoding="utf8"))
    assert (citation["version"], f"{citation['date-released']}") == (version, date)
    assert packages.__version__ == version


@pytest.mark.parametrize("draw", draw_ideas.PICTURES, ids=lambda draw: draw.__name__)
def test_a_picture_is_what_its_script_draws(draw):
    assert (ROOT / f"docs/{draw.__name__}.svg").read_text(encoding="utf8") == draw()


def test_the_configuration_page_has_every_field_with_its_default():
    page = SITE["configuration_page"]()
    for name, value in fields(load_config("default")):
        (line,) = [line for line in page.splitlines() if line.startswith(f"| `{name}` |")] or [""]
        if name == "model.shape":
            assert "## model.shape" in page
            continue
        assert line, name
        shown = line.split("|")[2].strip().strip("`")
        assert shown.endswith("...") or eval(shown) == (tuple(value) if isinstance(value, list) else value), name


@pytest.mark.parametrize("page", [page.name for page in PAGES])
def test_python_of_a_page_runs(page, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    command("example")([])  # the files that README reads
    names = {}
    for name, code in snippets("python"):
        if name == page:
            exec(code, names)


def test_the_example_is_as_the_readme_shows_it(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    assert command("example")([]) == 0
    printed = capsys.readouterr().out.splitlines()
    (shown,) = [code for page, code in snippets("text") if page == "README.md"]
    assert [line for line in printed if line in shown.splitlines()] == shown.splitlines()
    for name in ("eeg.csv", "noise.csv"):
        assert (tmp_path / "example" / name).read_text("utf8").count("\n") == 201
    write_files(tmp_path)
    for name in ("eeg.csv", "noise.csv"):
        assert (tmp_path / name).read_bytes() == (tmp_path / "example" / name).read_bytes(), name
    (tmp_path / "example/eeg.csv").write_text("mine")
    with pytest.raises(UserError, match=r"eeg\.csv: is not the example file of this version"):
        command("example")([])
    assert (tmp_path / "example/eeg.csv").read_text() == "mine"


@pytest.mark.parametrize(("page", "code"), snippets("bash"))
def test_commands_of_a_page_are_commands(page, code):
    """Every `eeg2text` line: there is such a command, such a configuration, such fields."""
    for line in code.replace("\\\n", " ").splitlines():
        words = shlex.split(line, comments=True)
        if not words or words[0] != "eeg2text":
            continue
        assert words[1] in COMMANDS, line
        options = TAKE_CONFIG.get(words[1], ())
        if options:
            shorts = ("--compat=", "--strict", "--task=")
            arguments = [word for word in words[2:] if not word.startswith(shorts)]
            parse_config(arguments, words[1], optional=options, default="default", positional="SOURCE")
        elif options is None:
            load_config(next(word for word in words if word.startswith("--config=")).removeprefix("--config="))
        else:
            try:
                status = command(words[1])(["--help"])
            except SystemExit as ended:
                status = ended.code
            assert status == 0


SPAN = re.compile(r"`([^`\n]+)`")
SOURCES = [*(ROOT / "eeg2text_jax").rglob("*.py"), *(ROOT / "tools").rglob("*.*"), *(ROOT / "configs").glob("*.py")]


def named(page: Path) -> list[str]:
    """Return the code of a page: lines of its blocks, and spans in its text; without commands of other programs."""
    text = page.read_text(encoding="utf8")
    blocks = re.findall(r"^```(?:bash|text)?\n(.*?)^```", text, re.DOTALL | re.MULTILINE)
    lines = [line for block in blocks for line in block.replace("\\\n", " ").splitlines()]
    prose = re.sub(r"^```.*?^```", "", text, flags=re.DOTALL | re.MULTILINE)
    return [
        code
        for code in [*lines, *SPAN.findall(prose.replace("\n", " "))]
        if not re.match(r"(pip|mkdocs|mlcroissant) ", code)
    ]


@functools.cache
def options_in_the_code() -> set[str]:
    text = "\n".join(path.read_text(encoding="utf8", errors="replace") for path in SOURCES if path.is_file())
    return set(re.findall(r"(?<![\w-])--[a-z][a-z-]+", text))


@functools.cache
def options_of(name: str) -> str:
    run = subprocess.run(
        [sys.executable, "-m", "eeg2text_jax", name, "--help"], cwd=ROOT, capture_output=True, text=True
    )
    return run.stdout


@pytest.mark.parametrize("page", [page for page in PAGES if page.stem != "field"], ids=lambda page: page.name)
def test_options_files_and_fields_named_on_a_page_exist(page):
    known = {name for name, _ in fields(load_config("default"))}
    for code in named(page):
        command_name = re.match(r"eeg2text (audit|compare|score)\b", code)
        for option in re.findall(r"(?<![\w-])--[a-z][a-z-]+", code):
            there = options_of(command_name[1]) if command_name else options_in_the_code()
            assert option in there or option.startswith("--config"), (page.name, code)
        for path in re.findall(r"(?:eeg2text_jax|tools|tests|docs|configs)/[a-z_\d/.-]+\b(?!\w)", code):
            assert (ROOT / path).exists(), (page.name, path)
        if field := re.fullmatch(r"(?:config\.)?((?:audit|retrieval|metrics|grid)\.(?!jsonl?$)\w+)", code):
            assert field[1] in known, (page.name, code)


def anchors_of(page: Path) -> set[str]:
    text = page.read_text(encoding="utf8")
    headings = re.findall(r"^#+ (.*)", text, re.MULTILINE)
    slugs = [re.sub(r"[\s-]+", "-", re.sub(r"[^\w\s-]", "", heading).strip().lower()) for heading in headings]
    return {*slugs, *re.findall(r'<a id="([^"]+)">', text)}


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_links_to_a_place_on_a_page_lead_there(page):
    for name, anchor in re.findall(r"\]\(([\w/.-]*\.md|)#([^)]+)\)", page.read_text(encoding="utf8")):
        target = (page.parent / name).resolve() if name else page
        assert anchor in anchors_of(target), (page.name, name, anchor)


@pytest.mark.parametrize("path", SITE["NOTEBOOKS"], ids=lambda path: path.stem)
def test_a_notebook_has_the_outputs_of_its_code_and_uses_public_names_alone(path):
    book = json.loads(path.read_text(encoding="utf8"))
    assert book["metadata"]["eeg2text"]["outputs_of"] == SITE["digest_of_code"](path), "tools/run_notebooks.py --store"
    cells = [cell for cell in book["cells"] if cell["cell_type"] == "code"]
    assert [cell["execution_count"] for cell in cells] == list(range(1, len(cells) + 1))
    outputs = [output for cell in cells for output in cell["outputs"]]
    assert {output["output_type"] for output in outputs} <= {"stream", "display_data", "execute_result"}
    assert any(kind.startswith("image/") for output in outputs for kind in output.get("data", {}))
    assert not re.search(r"Traceback|/tmp/|/root/|/home/", json.dumps(outputs))
    public = {"eeg2text_jax": eeg2text_jax.__all__, "eeg2text_jax.data": eeg2text_jax.data.__all__}
    for node in ast.walk(ast.parse("\n".join(SITE["code_of"](path)))):
        if isinstance(node, ast.ImportFrom) and node.module.startswith("eeg2text_jax"):
            assert {name.name for name in node.names} <= {*public.get(node.module, ())}, ast.unparse(node)
        if isinstance(node, ast.Import):
            ours = [name.name for name in node.names if name.name.startswith("eeg2text_jax")]
            assert set(ours) <= {"eeg2text_jax"}, ast.unparse(node)
        if isinstance(node, ast.Attribute):
            assert not node.attr.startswith("_"), ast.unparse(node)
            if isinstance(node.value, ast.Name) and node.value.id == "eeg2text_jax":
                assert node.attr in public["eeg2text_jax"], ast.unparse(node)


def test_there_are_four_notebooks_whose_pages_show_outputs():
    assert [path.stem for path in SITE["NOTEBOOKS"]] == ["audit_outputs", "own_eeg", "teacher_forcing", "when_not_what"]
    for path in SITE["NOTEBOOKS"]:
        page = SITE["notebook_page"](path)
        assert page.count("data:image/") >= 1
        assert '<div class="output">' in page
