"""Conversion between a PyTorch checkpoint's tensors and our parameters, by one table of names per architecture.

A parameter is named by its path in the nested dict (`backbone/encoder/layers/ffn/inner/kernel`). We stack layers in one
array; PyTorch has a tensor for each, with the layer's number in its name (`{layer}` in tables). `match` reads and
`export` writes a checkpoint by the same table, never by shape; `dense`, `norm` and `layers_of` make its rules.
"""

import dataclasses
import itertools
import re
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from eeg2text_jax.base.errors import UserError

Tensors = Mapping[str, np.ndarray]
FLOATING = ("float16", "bfloat16", "float32", "float64")


@dataclasses.dataclass(frozen=True)
class Rule:
    """One of our parameters, and the tensors of a file that hold it."""

    target: str  # path of the parameter
    source: str  # name of the tensor; with "{layer}", one for each layer of a stacked parameter
    layers: int = 0  # number of layers; 0: the parameter is not stacked
    transpose: bool = False  # dense layers: [out, in] in the file, [in, out] here; convolutions likewise
    part: tuple[int, int] = (0, 1)  # (i, n): the tensor's i-th part of n along its first axis in the file
    squeeze: bool = False  # the tensor in the file has an additional first axis of size 1
    optional: bool = False  # a file without the tensor gives zeros
    tied: tuple[str, ...] = ()  # other names of the same tensor: files may hold any or all of them
    otherwise: str = ""  # name of the tensor to read from a file that lacks `source`

    def names(self) -> list[str]:
        """Return the names of the tensors, in the order of the layers."""
        return [self.source.format(layer=i) for i in range(self.layers)] if self.layers else [self.source]

    def oriented(self, tensor: np.ndarray) -> np.ndarray:
        """Return a view of a tensor from the file in the shape of the parameter, or of one layer of it."""
        tensor = tensor[0] if self.squeeze else tensor
        tensor = np.split(tensor, self.part[1])[self.part[0]] if self.part[1] > 1 else tensor
        return tensor.T if self.transpose else tensor


@dataclasses.dataclass(frozen=True)
class Table:
    """The rules of an architecture, one for each parameter."""

    architecture: str  # name for messages
    rules: tuple[Rule, ...]
    ignored: tuple[str, ...] = ()  # regular expressions of names of tensors that the model does not use
    spellings: tuple[tuple[str, str], ...] = ()  # (pattern, replacement) for names that some files spell differently


@dataclasses.dataclass(frozen=True)
class Source:
    """Where a parameter is read from: views on the mapped file, in the orientation of the parameter."""

    pieces: tuple[np.ndarray, ...]  # one for each layer of a stacked parameter, else one
    stacked: bool
    names: Sequence[str] = ()  # of the tensors in the file
    where: str = ""  # the file or folder


def dense(
    target: str, source: str, layers: int = 0, *, bias: bool = True, part: tuple[int, int] = (0, 1), fused: str = "."
) -> list[Rule]:
    """Return the rules of a dense layer, stored as `weight [out, in]` and `bias [out]`, or of a convolution.

    `part` is for layers stored as one, see `Rule`; `fused` comes before `weight` and `bias` in the name.
    """
    kernel = Rule(f"{target}/kernel", f"{source}{fused}weight", layers, transpose=True, part=part)
    return [kernel, Rule(f"{target}/bias", f"{source}{fused}bias", layers, part=part)] if bias else [kernel]


def norm(target: str, source: str, layers: int = 0, *, bias: bool = True) -> list[Rule]:
    """Return the rules of a layer norm, stored as `weight [D]` and `bias [D]`, or of an RMS norm, without `bias`."""
    scale = Rule(f"{target}/scale", f"{source}.weight", layers)
    return [scale, Rule(f"{target}/bias", f"{source}.bias", layers)] if bias else [scale]


def layers_of(target: str, source: str, names: Mapping[str, str], layers: int, *, bias: bool = True) -> list[Rule]:
    """Return the rules of dense layers, and of norms (`norm` ends their name); `names` maps our names to theirs."""
    rules: list[Rule] = []
    for ours, theirs in names.items():
        make = norm if ours.endswith("norm") else dense
        rules += make(f"{target}/{ours}", f"{source}.{theirs}", layers, bias=bias)
    return rules


def under(target: str, source: str, names: Mapping[str, str]) -> dict[str, str]:
    """Return the same names below two others, for `layers_of`."""
    return {f"{target}/{ours}": f"{source}.{theirs}" for ours, theirs in names.items()}


def match(table: Table, tensors: Tensors, shapes: Mapping[str, tuple[int, ...]], where: str) -> dict[str, Source]:
    """Return where a checkpoint stores each parameter of a table, by path; nothing is copied.

    `shapes` are those of our parameters; `where` is the folder or file. Raises UserError if tensors are missing,
    unknown or wrongly shaped, or tied ones differ; the message names all.
    """
    table_names = (name for rule in table.rules for name in (*rule.names(), *rule.tied))
    spelled = {name: _spelling(name, table, tensors) for name in table_names}
    sources: dict[str, Source] = {}
    missing, misshapen, differing, other = [], [], [], []
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
            for name in names[1:]:
                one, first = tensors[name], tensors[names[0]]
                if one is not first and not np.array_equal(one, first):
                    differing.append(f"{name} and {names[0]}")
            pieces = names[:1]
        other += [f"{name} ({tensors[name].dtype})" for name in pieces if tensors[name].dtype.name not in FLOATING]
        expected = shapes[rule.target]
        wrong = [_misfit(name, tensors[name], rule, expected) for name in pieces]
        misshapen += [text for text in wrong if text]
        if pieces and not any(wrong):
            arrays = tuple(rule.oriented(tensors[name]) for name in pieces)
            sources[rule.target] = Source(arrays, bool(rule.layers), pieces, where)
        elif not pieces and rule.optional:
            sources[rule.target] = Source((np.broadcast_to(np.float32(0), expected),), False, [rule.source], where)
    read = {*spelled.values()}
    unused = [name for name in tensors if name not in read and not any(re.fullmatch(p, name) for p in table.ignored)]
    _refuse(table, where, missing, unused, misshapen, differing, other)
    return sources


def export(table: Table, params: dict[str, Any]) -> dict[str, np.ndarray]:
    """Return our parameters as tensors by PyTorch's names, views where possible: the inverse of `match`.

    Tied copies are left out, as in transformers' safetensors files.
    """
    tensors: dict[str, np.ndarray] = {}
    flat = flatten(params)
    for rule in table.rules:
        array = np.asarray(flat[rule.target])
        for name, piece in zip(rule.names(), array if rule.layers else [array], strict=True):
            piece = piece.T if rule.transpose else piece
            piece = piece[None] if rule.squeeze else piece
            tensors[name] = piece if rule.part[0] == 0 else np.concatenate([tensors[name], piece])  # parts are in order
    return tensors


def flatten(params: Mapping[str, Any], above: str = "") -> dict[str, Any]:
    """Return nested parameters as a flat dict, path `a/b/c` -> leaf; importing Flax's function takes seconds."""
    flat: dict[str, Any] = {}
    for name, value in params.items():
        flat |= flatten(value, f"{above}{name}/") if isinstance(value, Mapping) else {above + name: value}
    return flat


def unflatten(flat: Mapping[str, Any]) -> dict[str, Any]:
    """Undo `flatten`."""
    params: dict[str, Any] = {}
    for path, value in flat.items():
        *folders, leaf = path.split("/")
        node = params
        for folder in folders:
            node = node.setdefault(folder, {})
        node[leaf] = value
    return params


def _spelling(name: str, table: Table, tensors: Tensors) -> str:
    """Return the spelling under which the file has a tensor of the table; `name` if it lacks it."""
    for count in range(len(table.spellings) + 1):
        for substitutions in itertools.combinations(table.spellings, count):
            spelled = name
            for pattern, replacement in substitutions:
                spelled = re.sub(pattern, replacement, spelled)
            if spelled in tensors:
                return spelled
    return name


def _misfit(name: str, tensor: np.ndarray, rule: Rule, expected: tuple[int, ...]) -> str:
    shape = expected[1:] if rule.layers else expected
    in_file = (1, *shape) if rule.squeeze else shape[::-1] if rule.transpose else shape
    in_file = (in_file[0] * rule.part[1], *in_file[1:]) if rule.part[1] > 1 else in_file
    return "" if tensor.shape == in_file else f"{name} {list(tensor.shape)} instead of {list(in_file)}"


def _refuse(table: Table, where: str, *names: list[str]) -> None:
    missing, unused, misshapen, differing, other = names
    problems = [
        (missing, "the file lacks"),
        (unused, "the model does not use these tensors of the file:"),
        (misshapen, "wrongly shaped are"),
        (differing, "these are one tensor in the model, whatever tie_word_embeddings says, but differ in the file:"),
        (other, f"these are no floating-point numbers ({', '.join(FLOATING)}), or lack the scales that they need:"),
    ]
    said, most = [], 40
    for names, words in problems:
        listed = sorted(set(names))
        more = f" and {len(listed) - most} more" if len(listed) > most else ""
        said += [f"{words} {', '.join(listed[:most])}{more}"] if listed else []
    if said:
        raise UserError(
            f"{where}: the tensors do not fit the {table.architecture} model that the configuration describes: "
            f"{'; '.join(said)}. Use weights and configuration of one checkpoint."
        )
