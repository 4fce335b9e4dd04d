"""Rules that every architecture's table is made of."""

from eeg2text_jax.pretrained.mapping import Rule


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
