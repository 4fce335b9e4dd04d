"""Which tests run which lines of the package: recorded by coverage.py, in a process of its own for each file of tests.

In one process for all files, a function that JAX has traced for an earlier file would not run again for a later one.
"""

import ast
import collections
import functools
import importlib.util
import json
import os
import subprocess
from collections.abc import Iterator, Sequence
from pathlib import Path

TEST = "EEG2TEXT_TEST"  # environment variable: the test that starts a process
ROOT = Path(__file__).parents[2]
START = 1.0  # CPU-seconds of imports and collection for each further file of tests

Lines = dict[str, dict[int, set[str]]]  # module -> line -> tests


class LineWatch:
    """Notes in this process, and in processes that it starts, which test runs a line of the package.

    Processes that are forked and never import `site` again are not watched.
    """

    def __init__(self, root: Path, scratch: Path):
        import coverage

        self.root, self.scratch = root, scratch
        scratch.mkdir(parents=True, exist_ok=True)
        for old in scratch.iterdir():
            old.unlink()
        (scratch / "sitecustomize.py").write_text("import coverage\ncoverage.process_startup()\n")
        rules = ["[run]", "parallel = true", f"data_file = {scratch}/lines", f"include = {root}/eeg2text_jax/*",
                 f"context = ${{{TEST}}}", "disable_warnings = no-data-collected,module-not-imported"]  # fmt: skip
        (scratch / "rules").write_text("\n".join(rules))
        home = str(Path(importlib.util.find_spec("coverage").origin).parents[1])
        os.environ["PYTHONPATH"] = os.pathsep.join([str(scratch), os.environ["PYTHONPATH"], home])
        os.environ |= {"COVERAGE_PROCESS_START": str(scratch / "rules"), TEST: ""}
        self.coverage = coverage.Coverage(data_file=None, include=[f"{root}/eeg2text_jax/*"], config_file=False)
        self.coverage.start()

    def begin(self, test: str) -> None:
        """From now on lines are run by `test`; "" between tests."""
        os.environ[TEST] = test
        self.coverage.switch_context(test)

    def lines(self) -> Lines:
        """All lines so far. Lines that are run by an import while tests are collected belong to the test ""."""
        import coverage

        self.coverage.stop()
        parts = [self.coverage.get_data()]
        for path in sorted(self.scratch.glob("lines.*")):
            parts.append(coverage.CoverageData(str(path)))
            parts[-1].read()
        found: Lines = collections.defaultdict(lambda: collections.defaultdict(set))
        for part in parts:
            for name in part.measured_files():
                module = str(Path(name).relative_to(self.root))
                for line, tests in part.contexts_by_lineno(name).items():
                    found[module][line].update(tests)
        return found


class LineTests:
    """A record of who runs what, one file of tests a row, kept in a file that grows while it is made."""

    def __init__(self, path: Path, root: Path):
        self.root = root
        rows = [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []
        self.by_file = {row["file"]: row for row in rows}
        self.commits = {row["commit"] for row in self.by_file.values()}

    def knows(self, module: str, commit: str) -> bool:
        """Whether the module is at this commit what it was when each row was made."""
        return bool(self.commits) and all(module not in _changed(recorded, commit) for recorded in self.commits)

    def changed(self, commit: str) -> list[str]:
        """Recorded files of tests that are not at this commit what they were when their row was made."""
        names: set[str] = set()
        for recorded in self.commits:
            for name in _changed(recorded, commit):
                if name in self.by_file and self.by_file[name]["commit"] == recorded:
                    names.add(name)
        return sorted(names)

    def files(self, module: str, line: int) -> list[dict[str, float]]:
        """Tests for a change in a line, as parts: tests of one file with their CPU-seconds.

        First the tests that run the statement of this line, quickest first, one part for each file of them in turn;
        then all others in the same files, which may use what JAX has traced or a fixture has made for the former.
        A statement outside of functions is run by an import: there, tests that run anything in the module.
        """
        statement, imported = _statement((self.root / module).read_text(), line)
        near, rest = [], []
        for file, row in self.by_file.items():
            lines = row["lines"].get(module, {})
            runs = {test for at in (lines if imported else map(str, statement)) for test in lines.get(at, ())}
            if found := {name: row["tests"][name] for name in runs if name in row["tests"]}:
                near.append((file, found))
                rest.append((file, {name: t for name, t in row["tests"].items() if name not in found}))
        return [part for part in [*_by_cost(near), *_by_cost(rest)] if part]


@functools.cache
def _changed(one: str, other: str) -> frozenset[str]:
    command = ["git", "diff", "--name-only", "--diff-filter=d", one, other]
    return frozenset(subprocess.run(command, cwd=ROOT, check=True, capture_output=True, text=True).stdout.split())


def _by_cost(found: Sequence[tuple[str, dict[str, float]]]) -> list[dict[str, float]]:
    """Parts of growing cost: of each file its quickest test first, then twice as much time of it, and so on."""
    parts = []
    for _, tests in found:
        part, limit, spent = {}, 2.0, 0.0
        for name, seconds in sorted(tests.items(), key=lambda item: item[1]):
            if part and spent + seconds > limit:
                parts.append((spent, part))
                part, limit = {}, 4 * limit
            part[name], spent = seconds, spent + seconds
        parts.append((spent, part))
    return [part for _, part in sorted(parts, key=lambda item: item[0])]


def _statement(source: str, line: int) -> tuple[range, bool]:
    """Lines of the innermost statement around a line, without the statements in it; whether an import runs it."""

    def inner(node: ast.AST, inside: bool) -> Iterator[tuple[ast.stmt, bool]]:
        for child in ast.iter_child_nodes(node):
            if isinstance(child, ast.stmt) and child.lineno <= line <= child.end_lineno:
                yield child, inside
            yield from inner(child, inside or isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef))

    around = list(inner(ast.parse(source), False))
    if not around:
        return range(line, line + 1), True
    statement, inside = around[-1]
    body = getattr(statement, "body", None)
    end = body[0].lineno - 1 if body else statement.end_lineno
    return range(statement.lineno, max(end, line) + 1), not inside
