"""Names of a foreign checkpoint <-> places in our parameters: one table per architecture, read in both directions.

A parameter is named by its path (`backbone/encoder/layers/ffn/inner/kernel`), a tensor by PyTorch's name with
`{layer}` where one of our stacked arrays is spread over the layers. Nothing is matched by shape.
`dense`, `norm` and `attention` make the rules that every table consists of.
"""

import dataclasses
import itertools
import re
from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np

from eeg2text_jax.errors import UserError

Tensors = Mapping[str, np.ndarray]


@dataclasses.dataclass(frozen=True)
class Rule:
    """One parameter and the tensor it is stored as."""

    target: str  # path of the parameter
    source: str  # name of the tensor; with "{layer}" the parameter is stacked over layers
    layers: int = 0  # how many, where stacked
    transpose: bool = False  # dense layers: [out, in] in the file, [in, out] here
    squeeze: bool = False  # the file has a leading axis of 1 more
    optional: bool = False  # zeros where the file lacks it
    tied: tuple[str, ...] = ()  # other names of the same tensor: files may hold any or all of them
    otherwise: str = ""  # the tensor to take instead where the file lacks this one

    def names(self) -> list[str]:
        """Tensors that make up the parameter, in order of layers."""
        return [self.source.format(layer=i) for i in range(self.layers)] if self.layers else [self.source]

    def oriented(self, tensor: np.ndarray) -> np.ndarray:
        """The file's tensor as we keep it: a view."""
        tensor = tensor[0] if self.squeeze else tensor
        return tensor.T if self.transpose else tensor


@dataclasses.dataclass(frozen=True)
class Table:
    """All rules of an architecture."""

    architecture: str
    rules: tuple[Rule, ...]
    ignored: tuple[str, ...] = ()  # regular expressions of tensors that files have and the model does not use
    spellings: tuple[tuple[str, str], ...] = ()  # (regular expression, replacement): how else files write a name


@dataclasses.dataclass(frozen=True)
class Source:
    """The pieces of one parameter: views on the file, in our orientation, one per layer if it is stacked."""

    pieces: tuple[np.ndarray, ...]
    stacked: bool


def dense(target: str, source: str, layers: int = 0, *, bias: bool = True) -> list[Rule]:
    """A dense layer: `weight [out, in]`, `bias [out]`."""
    kernel = Rule(f"{target}/kernel", f"{source}.weight", layers, transpose=True)
    return [kernel, Rule(f"{target}/bias", f"{source}.bias", layers)] if bias else [kernel]


def norm(target: str, source: str, layers: int = 0, *, bias: bool = True) -> list[Rule]:
    """A layer norm: `weight [D]`, `bias [D]`; without bias a root-mean-square norm."""
    scale = Rule(f"{target}/scale", f"{source}.weight", layers)
    return [scale, Rule(f"{target}/bias", f"{source}.bias", layers)] if bias else [scale]


def attention(target: str, names: dict[str, str], layers: int, *, bias: bool = True) -> list[Rule]:
    """The four dense layers of an attention; `names` gives the source of query, key, value and out."""
    return [rule for part, source in names.items() for rule in dense(f"{target}/{part}", source, layers, bias=bias)]


def match(table: Table, tensors: Tensors, shapes: Mapping[str, tuple[int, ...]], where: str) -> dict[str, Source]:
    """Find every parameter of the table in a checkpoint; nothing is copied.

    `shapes` are those of our parameters, by path; `where` is the checkpoint's place, for messages.

    Raises:
      UserError: tensors are missing, left over, wrongly shaped, or tied ones differ; all are named.
    """
    known = (name for rule in table.rules for name in (*rule.names(), *rule.tied))
    spelled = {name: _spelling(name, table, tensors) for name in known}
    found: dict[str, Source] = {}
    missing, misshapen, differing = [], [], []
    for rule in table.rules:
        names = [spelled[name] for name in (*rule.names(), *rule.tied) if spelled[name] in tensors]
        if rule.layers:
            missing += [name for name in rule.names() if spelled[name] not in tensors]
            pieces = names if len(names) == rule.layers else []
        else:
            if not names and rule.otherwise and spelled[rule.otherwise] in tensors:
                names = [spelled[rule.otherwise]]
            if not names and not rule.optional:
                missing.append(rule.source)
            differing += [f"{name} and {names[0]}" for name in names[1:] if not _same(tensors[name], tensors[names[0]])]
            pieces = names[:1]
        expected = shapes[rule.target]
        wrong = [_misfit(name, tensors[name], rule, expected) for name in pieces]
        misshapen += [text for text in wrong if text]
        if pieces and not any(wrong):
            arrays = tuple(rule.oriented(tensors[name]) for name in pieces)
            found[rule.target] = Source(arrays, stacked=bool(rule.layers))
        elif not pieces and rule.optional:
            found[rule.target] = Source((np.broadcast_to(np.float32(0), expected),), stacked=False)
    unused = [name for name in tensors if name not in set(spelled.values()) and not _ignored(name, table)]
    _refuse(table, where, missing, unused, misshapen, differing)
    return found


def export(table: Table, params: Mapping[str, Any]) -> dict[str, np.ndarray]:
    """Our parameters -> tensors by PyTorch's names, the exact inverse of `match`: views where possible.

    Tied copies are left out, as transformers does in safetensors files.
    """
    tensors = {}
    flat = flatten(params)
    for rule in table.rules:
        array = np.asarray(flat[rule.target])
        for name, piece in zip(rule.names(), array if rule.layers else [array], strict=True):
            piece = piece.T if rule.transpose else piece
            tensors[name] = piece[None] if rule.squeeze else piece
    return tensors


def flatten(params: Mapping[str, Any], above: str = "") -> dict[str, Any]:
    """Nested parameters -> leaves by path, `a/b/c`."""
    flat: dict[str, Any] = {}
    for name, value in params.items():
        flat |= flatten(value, f"{above}{name}/") if isinstance(value, Mapping) else {above + name: value}
    return flat


def unflatten(flat: Mapping[str, Any]) -> dict[str, Any]:
    """Leaves by path -> nested parameters."""
    params: dict[str, Any] = {}
    for path, value in flat.items():
        *folders, leaf = path.split("/")
        node = params
        for folder in folders:
            node = node.setdefault(folder, {})
        node[leaf] = value
    return params


def _spelling(name: str, table: Table, tensors: Tensors) -> str:
    """Return the file's name of tensor `name`: the table's, unless the file has another known spelling."""
    for count in range(len(table.spellings) + 1):
        for chosen in itertools.combinations(table.spellings, count):
            spelled = name
            for pattern, replacement in chosen:
                spelled = re.sub(pattern, replacement, spelled)
            if spelled in tensors:
                return spelled
    return name


def _same(a: np.ndarray, b: np.ndarray) -> bool:
    return a is b or (a.shape == b.shape and bool(np.array_equal(a, b)))


def _misfit(name: str, tensor: np.ndarray, rule: Rule, expected: tuple[int, ...]) -> str:
    shape = expected[1:] if rule.layers else expected
    in_file = (1, *shape) if rule.squeeze else shape[::-1] if rule.transpose else shape
    return "" if tensor.shape == in_file else f"{name} {list(tensor.shape)} instead of {list(in_file)}"


def _ignored(name: str, table: Table) -> bool:
    return any(re.fullmatch(pattern, name) for pattern in table.ignored)


def _refuse(table: Table, where: str, missing: list, unused: list, misshapen: list, differing: list) -> None:
    problems = [
        (missing, "the file lacks"),
        (unused, "the file has, and the model does not use,"),
        (misshapen, "wrongly shaped are"),
        (differing, "one tensor here, whatever tie_word_embeddings says, but in the file different ones are"),
    ]
    said = [f"{words} {_listed(names)}" for names, words in problems if names]
    if said:
        raise UserError(f"{where}: is no {table.architecture} checkpoint of its configuration; {'; '.join(said)}.")


def _listed(names: Iterable[str]) -> str:
    names, most = sorted(names), 40
    more = f" and {len(names) - most} more" if len(names) > most else ""
    return ", ".join(names[:most]) + more
