"""Small semantic changes of Python source, one at a time, found in its syntax tree."""

import ast
import copy
import dataclasses
import json
import re
from collections.abc import Iterator
from pathlib import Path

COMPARED = {
    ast.Lt: ast.LtE, ast.LtE: ast.Lt, ast.Gt: ast.GtE, ast.GtE: ast.Gt, ast.Eq: ast.NotEq, ast.NotEq: ast.Eq,
    ast.Is: ast.IsNot, ast.IsNot: ast.Is, ast.In: ast.NotIn, ast.NotIn: ast.In,
}  # fmt: skip
COMPUTED = {
    ast.Add: ast.Sub, ast.Sub: ast.Add, ast.Mult: ast.Div, ast.Div: ast.Mult, ast.BitAnd: ast.BitOr,
    ast.BitOr: ast.BitAnd, ast.FloorDiv: ast.Div, ast.Mod: ast.FloorDiv,
}  # fmt: skip
PAIRS = (
    ("min", "max"), ("minimum", "maximum"), ("any", "all"), ("argmin", "argmax"), ("floor", "ceil"), ("sum", "mean"),
    ("zeros", "ones"), ("zeros_like", "ones_like"), ("sorted", "list"), ("cumsum", "cumprod"), ("sin", "cos"),
)  # fmt: skip
EXCHANGED = {one: other for pair in PAIRS for one, other in (pair, pair[::-1]) if (one, other) != ("list", "sorted")}

# Calls whose arguments are words for people.
SAYING = {"print", "UserError", "ValueError", "RuntimeError", "TypeError", "AssertionError", "named_scope", "join",
          "ProgressLine", "warn", "announce", "format"}  # fmt: skip
# Lines that are about speed, memory or looks alone: a change there that alters no result is no fault of the tests.
SPEED = re.compile(
    r"maxsize|donate|prefetch|num_threads|static_arg|\bBLOCK\b|precision|inline|strict=|flush|sleep|timeout|indent"
    r"|remat|barrier|profile|figsize|\bdpi\b|default_backend|_on_a_cpu|platform|compactions|max_workers|TYPE_CHECKING"
    r"|__name__|\b(ax|axes|plt|figure)\."
)


@dataclasses.dataclass(frozen=True)
class Mutant:
    """One change of one file."""

    module: str  # path of the file below the root
    line: int  # from 1
    kind: str
    start: int  # offsets of what is replaced, in bytes of the file
    end: int
    before: str  # what stands there
    after: str  # what takes its place

    def applied(self, source: bytes) -> bytes:
        """The file with the change. Raises ValueError if another text stands there."""
        if source[self.start : self.end] != self.before.encode():
            raise ValueError(f"{self.module}:{self.line}: the file has changed since the mutant was drawn.")
        return source[: self.start] + self.after.encode() + source[self.end :]

    def compiles(self, source: bytes) -> bool:
        try:
            return ast.dump(ast.parse(self.applied(source))) != ast.dump(ast.parse(source))
        except SyntaxError:
            return False


def mutants(root: Path, module: str) -> list[Mutant]:
    """Every change of a module of the kinds below; some do not compile, or to the same program (`Mutant.compiles`)."""
    source = (root / module).read_bytes()
    lines = source.splitlines(keepends=True)
    offsets = [0]
    for line in lines:
        offsets.append(offsets[-1] + len(line))
    found = []
    for node, kind, replacement in _changes(ast.parse(source)):
        start = offsets[node.lineno - 1] + node.col_offset
        end = offsets[node.end_lineno - 1] + node.end_col_offset
        if SPEED.search(b"".join(lines[node.lineno - 1 : node.end_lineno]).decode()[:300]):
            continue
        after = replacement if isinstance(replacement, str) else f"({ast.unparse(replacement)})"
        after = after[1:-1] if isinstance(replacement, ast.Constant | ast.Call | ast.Name) else after
        found.append(Mutant(module, node.lineno, kind, start, end, source[start:end].decode(), after))
    return list(dict.fromkeys(found))


def written(root: Path, path: Path) -> list[Mutant]:
    """Mutants that somebody wrote. Raises ValueError if a text is not once in its file, or changes no program."""
    found = []
    for number, row in enumerate(map(json.loads, path.read_text().splitlines()), start=1):
        source, old = (root / row["file"]).read_bytes(), row["old"].encode()
        start = source.find(old)
        line = source.count(b"\n", 0, start) + 1
        mutant = Mutant(row["file"], line, "by hand", start, start + len(old), row["old"], row["new"])
        if source.count(old) != 1 or not mutant.compiles(source):
            raise ValueError(f"{path}: line {number}: {source.count(old)} places, or no other program.")
        found.append(mutant)
    return found


def _changes(tree: ast.AST) -> Iterator[tuple[ast.AST, str, ast.AST | str]]:
    """(node, kind of change, what takes its place)."""
    for node in _meant(tree):
        if isinstance(node, ast.Compare) and len(node.ops) == 1:
            yield node, "comparison", _with(node, ops=[COMPARED[type(node.ops[0])]()])
        elif isinstance(node, ast.BinOp) and type(node.op) in COMPUTED and not _of_text(node):
            yield node, "arithmetic", _with(node, op=COMPUTED[type(node.op)]())
        elif isinstance(node, ast.BoolOp):
            yield node, "and/or", _with(node, op=ast.And() if isinstance(node.op, ast.Or) else ast.Or())
            for drop in range(len(node.values)):
                rest = [value for k, value in enumerate(node.values) if k != drop]
                yield node, "condition dropped", rest[0] if len(rest) == 1 else _with(node, values=rest)
        elif isinstance(node, ast.UnaryOp):
            yield node, "negation", node.operand
        elif isinstance(node, ast.Constant):
            yield from ((node, "constant", ast.Constant(value)) for value in _near(node.value))
        elif isinstance(node, ast.If | ast.IfExp):
            yield from ((node.test, "condition forced", ast.Constant(value)) for value in (True, False))
        elif isinstance(node, ast.Call):
            yield from _of_call(node)
        elif isinstance(node, ast.Expr | ast.AugAssign | ast.Raise | ast.Break | ast.Continue) or _sets_a_part(node):
            yield node, "statement removed", "pass"


def _of_call(node: ast.Call) -> Iterator[tuple[ast.AST, str, ast.AST | str]]:
    name = _name(node)
    if name in EXCHANGED:
        function = copy.deepcopy(node.func)
        setattr(function, "attr" if isinstance(function, ast.Attribute) else "id", EXCHANGED[name])
        yield node, "function exchanged", _with(node, func=function)
    for drop, keyword in enumerate(node.keywords):
        if keyword.arg:
            yield node, "argument dropped", _with(node, keywords=node.keywords[:drop] + node.keywords[drop + 1 :])
    plain = not any(isinstance(argument, ast.Starred) for argument in node.args)
    if len(node.args) >= 2 and plain:
        first, second, *rest = node.args
        yield node, "arguments swapped", _with(node, args=[second, first, *rest])


def _near(value: object) -> list[object]:
    if isinstance(value, bool):
        return [not value]
    if isinstance(value, int):
        return [value + 1, value - 1] if value > 0 else [value + 1]
    return [value * 2 if value else 1.0] if isinstance(value, float) else []


def _meant(node: ast.AST) -> Iterator[ast.AST]:
    """Nodes below one, without annotations, docstrings, texts and what is said to people."""
    for name, value in ast.iter_fields(node):
        if name in ("annotation", "returns", "decorator_list", "type_params"):
            continue
        for child in value if isinstance(value, list) else [value]:
            if not isinstance(child, ast.AST) or isinstance(child, ast.JoinedStr | ast.Assert | ast.Import):
                continue
            said = child.value if isinstance(child, ast.Expr) else child
            if isinstance(said, ast.Constant) and isinstance(said.value, str):
                continue
            if isinstance(said, ast.Call) and _name(said) in SAYING:
                continue
            if isinstance(child, ast.Raise):
                yield child  # may be removed; what it says is not changed
                continue
            if not (isinstance(child, ast.Expr) and not isinstance(said, ast.Call)):
                yield child
            yield from _meant(child)


def _name(call: ast.Call) -> str:
    return getattr(call.func, "attr", getattr(call.func, "id", ""))


def _of_text(node: ast.BinOp) -> bool:
    sides = (node.left, node.right)
    return any(isinstance(s, ast.JoinedStr) or isinstance(getattr(s, "value", None), str) for s in sides)


def _sets_a_part(node: ast.AST) -> bool:
    """Whether it assigns to an element or attribute, without which the program still has all its names."""
    return isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Subscript | ast.Attribute)


def _with(node: ast.AST, **fields: object) -> ast.AST:
    changed = copy.copy(node)
    for name, value in fields.items():
        setattr(changed, name, value)
    return changed
