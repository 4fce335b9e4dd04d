"""Encoders of waves (`models.waves`) in folders of their own formats: braindecode's, or a Whisper of transformers.

A folder of braindecode has `config.json`, the arguments of the model's class, and `model.safetensors` or
`pytorch_model.bin`, its state dict. `wave_spec` describes the encoder of a folder, or one with random weights,
`wave_sources` finds its weights, and `write_wave_encoder` writes a folder that braindecode's `from_pretrained` loads.
"""

import dataclasses
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from transformers import AutoConfig

from eeg2text_jax.base.errors import UserError, first_line
from eeg2text_jax.base.files import parse_json
from eeg2text_jax.models.backbones import LORA_TARGETS, ModelSettings, whisper
from eeg2text_jax.models.backbones.mapping import Rule, Source, Table, dense, export, flatten, match, norm
from eeg2text_jax.models.pretrained.folder import checkpoint_folder, read_tensors, write_safetensors
from eeg2text_jax.models.spec import Channels, EEGSpec, LoraSpec, PatchConvolution, StackSpec, WaveSpec
from eeg2text_jax.models.waves import LABRAM_CHANNELS, count_patches, stem_width

RATE = 200.0  # samples a second that the pretrained encoders read, unless their folder says otherwise
TIMES = 512  # rows of the table of times of a LaBraM with random weights
CLASSES = {"labram": "Labram", "cbramod": "CBraMod", "reve": "REVE"}  # kind -> braindecode's class
_WIDTH = {"labram": 200, "cbramod": 200, "reve": 512}  # where model.encoder_width is 0
_SIZES = {  # fields of a folder's config.json -> what they must be
    "labram": ("patch_size", "num_layers", "num_heads", "conv_out_channels"),
    "cbramod": ("patch_size", "n_layer", "nhead", "dim_feedforward", "emb_dim"),
    "reve": ("patch_size", "patch_overlap", "depth", "heads", "head_dim", "embed_dim"),
}
# Fields of a folder's config.json with the only value that is implemented.
_ONLY: dict[str, Any] = {
    "learned_patcher": False, "neural_tokenizer": True, "activation": "torch.nn.modules.activation.GELU",
    "norm_layer": "torch.nn.modules.normalization.LayerNorm",
}  # fmt: skip


def wave_spec(config: ModelSettings, features: int, channels: Channels, d_model: int) -> WaveSpec:
    """Return the description of the encoder of waves that the section `model` asks for.

    Raises UserError if a field is not usable, the folder of `encoder_checkpoint` is of another encoder, or the channels
    or the rate of the data do not fit the encoder.
    """
    kind = config.encoder
    if kind == "whisper":
        return _of_whisper(config)
    fields = read_fields(config.encoder_checkpoint, kind) if config.encoder_checkpoint else {}
    of = {"conv": _conv, "labram": _labram, "cbramod": _cbramod, "reve": _reve}[kind]
    waves = of(config, fields, d_model)
    if fields:
        check_rate(channels.rate, float(fields.get("sfreq") or RATE), config.encoder_checkpoint)
    stack = dataclasses.replace(waves.stack, lora=_lora(config), **_dropout(config))
    used = dict.fromkeys(range(features)) if kind != "labram" else labram_rows(channels, features)
    if kind == "reve":
        used = reve_places(channels, config.waves.positions)
        waves = dataclasses.replace(waves, places=tuple(used.values()))
    rows = tuple(used.values()) if kind == "labram" and waves.rows else ()
    return dataclasses.replace(waves, stack=stack, used=tuple(used), rows=rows, pooled=config.waves.pool)


def _dropout(config: ModelSettings) -> dict[str, Any]:
    names = ("embedding_dropout", "dropout", "attention_dropout", "activation_dropout")
    return dict.fromkeys(names, config.dropout)


def _lora(config: ModelSettings) -> LoraSpec | None:
    lora = config.lora
    if config.encoder_train != "adapters":
        return None
    return LoraSpec(lora.rank, lora.alpha, lora.dropout, tuple(LORA_TARGETS[name] for name in lora.targets))


def read_fields(name: str, kind: str) -> dict[str, Any]:
    """Return the fields of the `config.json` of an encoder's folder, checked for what is implemented."""
    path = checkpoint_folder(name) / "config.json"
    try:
        fields = parse_json(path.read_bytes())
    except (OSError, ValueError) as error:
        raise UserError(f"{path}: cannot be read ({first_line(error)}); copy the encoder's folder again.") from error
    wrong = [size for size in _SIZES[kind] if not isinstance(fields, dict) or not isinstance(fields.get(size), int)]
    if wrong:
        raise UserError(
            f"{path}: has no number {', '.join(wrong)}; expected a configuration of braindecode's {CLASSES[kind]}, as "
            f"model.encoder is {kind!r}."
        )
    for field, value in _ONLY.items():
        if field in fields and fields[field] != value:
            raise UserError(f"{path}: {field} is {fields[field]!r}; only {value!r} is implemented; take another one.")
    return fields


def check_rate(rate: float, expected: float, name: str) -> None:
    """Raise UserError if the data's rate is known and is not the one that an encoder was trained with."""
    if rate and abs(rate - expected) > 1e-3 * expected:
        raise UserError(
            f"{name}: reads {expected:g} samples a second, and the data has {rate:g}; prepare the data with "
            f"data.raw.resample={expected:g}."
        )


# Channels by name.


def labram_rows(channels: Channels, features: int) -> dict[int, int]:
    """Return the row of LaBraM's table of positions of each channel that it knows, by the channel's number."""
    if not channels.names:
        raise UserError(
            "model.encoder is 'labram', which finds channels by name, but the data states no names of its "
            f"{features} channels; prepare it from raw recordings with data.raw.features=waves."
        )
    rows = {name: row for row, name in enumerate(LABRAM_CHANNELS, 1)}
    used = {n: rows[name.upper()] for n, name in enumerate(channels.names) if name.upper() in rows}
    if not used:
        raise UserError(
            f"model.encoder is 'labram', which knows none of the channels {_some(channels.names)}; expected names of "
            f"the 10-20 system such as {', '.join(LABRAM_CHANNELS[:3])}."
        )
    return used


def reve_places(channels: Channels, path: str) -> dict[int, tuple[float, float, float]]:
    """Return the place of each channel that has one, by its number: from a JSON file by name, or from the data."""
    if not path:
        if not channels.places:
            raise UserError(
                "model.encoder is 'reve', which needs the places of channels, but the data has none; set "
                "data.raw.montage, or model.waves.positions to a JSON file of name to [x, y, z]."
            )
        return dict(enumerate(channels.places))
    try:
        places = {}
        for name, (x, y, z) in parse_json(Path(path).read_bytes()).items():
            places[str(name).upper()] = float(x), float(y), float(z)
    except (OSError, ValueError, TypeError, AttributeError) as error:
        raise UserError(
            f"{path}: expected a JSON object of channel name to [x, y, z] ({first_line(error)})."
        ) from error
    used = {n: places[name.upper()] for n, name in enumerate(channels.names) if name.upper() in places}
    if not used:
        raise UserError(f"{path}: has none of the data's channels {_some(channels.names)}; expected their names.")
    return used


def unused_note(eeg: EEGSpec | None, channels: Channels) -> str:
    """Return a line about the channels that the encoder does not know and leaves out; "" if it reads all."""
    if eeg is None or eeg.waves is None or not eeg.waves.used or len(eeg.waves.used) == eeg.features:
        return ""
    left = [channels.names[n] for n in range(eeg.features) if n not in eeg.waves.used]
    return f"{eeg.kind}: reads {len(eeg.waves.used)} of {eeg.features} channels; unknown to it: {_some(left)}."


def _some(names: Sequence[str]) -> str:
    return ", ".join(names[:12]) + (f" and {len(names) - 12} more" if len(names) > 12 else "")


# The description of each encoder, from the fields of a folder or (empty) from the section `model`.


def _stack(
    config: ModelSettings, fields: Mapping[str, Any], names: Sequence[str], width: int, **others: Any
) -> StackSpec:
    """Return a stack; `names` are those of layers, heads and feed-forward width in `fields`."""
    own = (config.encoder_layers, config.encoder_heads, config.encoder_ffn)
    layers, heads, ffn = (int(fields.get(name, value)) for name, value in zip(names, own, strict=True))
    if "head_dim" not in others and (heads < 1 or width % heads):
        raise UserError(
            f"config.model.encoder_heads is {heads}, which does not divide the width {width} of {config.encoder}; "
            "choose another number of heads or an encoder_width."
        )
    return StackSpec(**{
        "layers": layers, "width": width, "heads": heads, "head_dim": width // heads, "ffn": ffn,
        "activation": "gelu", "pre_norm": True, "init_std": None, **others,
    })  # fmt: skip


def _conv(config: ModelSettings, fields: Mapping[str, Any], d_model: int) -> WaveSpec:
    width = config.encoder_width or d_model
    if config.encoder_layers == 0:
        width = d_model  # the stem alone, which the language model reads
    stack = _stack(config, fields, ("", "", ""), width, positions="sinusoidal", final_norm=True)
    return WaveSpec(stack, tuple(config.waves.strides))


def _of_whisper(config: ModelSettings) -> WaveSpec:
    if not config.encoder_checkpoint:
        raise UserError(
            "model.encoder is 'whisper' and model.encoder_checkpoint is empty; expected a Whisper, or model.encoder="
            "conv, which is the same with random weights."
        )
    folder = checkpoint_folder(config.encoder_checkpoint)
    theirs = AutoConfig.from_pretrained(str(folder), local_files_only=True, trust_remote_code=False)
    if theirs.model_type != whisper.MODEL_TYPE:
        raise UserError(f"{folder / 'config.json'}: model_type is {theirs.model_type!r}; expected 'whisper'.")
    stack = whisper.spec_from_config(theirs).encoder
    stack = dataclasses.replace(stack, lora=_lora(config), **_dropout(config))
    return WaveSpec(stack, (*config.waves.strides, 2))


def _patch_width(config: ModelSettings, waves: WaveSpec) -> WaveSpec:
    """Return `waves` if its convolutions make as many values of a patch as the transformer is wide."""
    if stem_width(waves) != waves.stack.width or any(each.filters % each.groups for each in waves.convolutions):
        length = stem_width(waves) // waves.convolutions[-1].filters
        raise UserError(
            f"config.model.encoder_width is {waves.stack.width} with model.waves.patch={waves.patch}; expected a "
            f"multiple of {length * waves.convolutions[-1].groups} for {config.encoder}, whose convolutions make "
            f"{length} values of a patch with each of their filters."
        )
    return waves


def _labram(config: ModelSettings, fields: Mapping[str, Any], d_model: int) -> WaveSpec:
    patch = int(fields.get("patch_size", config.waves.patch))
    length = (patch - 1) // 8 + 1  # of a patch after the first convolution
    filters = int(fields.get("conv_out_channels", max(1, (config.encoder_width or _WIDTH["labram"]) // length)))
    width = filters * length if fields else config.encoder_width or _WIDTH["labram"]
    ratio, own = fields.get("mlp_ratio", 4.0), fields.get("attn_head_dim")
    stack = _stack(
        config,
        {**fields, "ffn": int(width * ratio) if fields else config.encoder_ffn},
        ("num_layers", "num_heads", "ffn"),
        width,
        query_scale=fields.get("qk_scale") or 0.0,
        norm_eps=1e-6,
        final_norm=True,
        bias=False,
        biases=("out", "inner", "outer", *(("query", "value") if fields.get("qkv_bias") else ())),
        head_norm=fields.get("qk_norm", True) is not None,
        layer_scale=fields.get("init_values", 0.1) or 0.0,
        **({"head_dim": int(own)} if own else {}),
    )
    convolutions = (
        PatchConvolution(filters, 15, 8, 7, 4),
        PatchConvolution(filters, 3, 1, 1, 4),
        PatchConvolution(filters, 3, 1, 1, 4),
    )
    times = (
        read_tensors(checkpoint_folder(config.encoder_checkpoint))["temporal_embedding"].shape[1] if fields else TIMES
    )
    pooling, rows = bool(fields.get("use_mean_pooling", False)), (0,) if fields.get("use_abs_pos_emb", True) else ()
    return _patch_width(
        config, WaveSpec(stack, (), patch, 0, convolutions, times=times, mean_pooling=pooling, rows=rows)
    )


def _cbramod(config: ModelSettings, fields: Mapping[str, Any], d_model: int) -> WaveSpec:
    patch = int(fields.get("patch_size", config.waves.patch))
    stated = fields.get("channels_kernel_stride_padding_norm")
    if stated:
        convolutions = tuple(PatchConvolution(*map(int, [*each[:4], each[4][0]])) for each in stated)
        width = stem_width(WaveSpec(StackSpec(0, 1, 1, 1, 1, "gelu"), (), patch, 0, convolutions))
    else:  # a patch of 8 s samples becomes 8 values of each filter, as in the published model, whose s is 25
        stride, width = max(1, patch // 8), config.encoder_width or _WIDTH["cbramod"]
        first = PatchConvolution(width // 8, 2 * stride - 1, stride, stride - 1, 5)
        convolutions = (first, *[PatchConvolution(width // 8, 3, 1, 1, 5)] * 2)
    stack = _stack(config, fields, ("n_layer", "nhead", "dim_feedforward"), width)
    if stack.heads % 2 or width % 2:
        raise UserError(
            f"config.model.encoder_heads is {stack.heads}, the width {width}; expected even numbers for cbramod: half "
            "of them attend to channels, half to times."
        )
    outputs = int(fields.get("emb_dim", width))
    return _patch_width(config, WaveSpec(stack, (), patch, 0, convolutions, outputs=outputs))


def _reve(config: ModelSettings, fields: Mapping[str, Any], d_model: int) -> WaveSpec:
    patch, overlap = (
        int(fields.get(f"patch_{name}", value))
        for name, value in (("size", config.waves.patch), ("overlap", config.waves.overlap))
    )
    if overlap >= patch:
        raise UserError(f"config.model.waves.overlap is {overlap}; expected less than model.waves.patch ({patch}).")
    width, frequencies = (
        int(fields.get("embed_dim", config.encoder_width or _WIDTH["reve"])),
        int(fields.get("freqs", 4)),
    )
    if width % 2 or width // 2 > frequencies**4:
        raise UserError(
            f"config.model.encoder_width is {width}; expected an even number up to {2 * frequencies**4} for reve."
        )
    ffn = int(width * fields["mlp_dim_ratio"]) if fields else config.encoder_ffn
    options = {"head_dim": int(fields["head_dim"])} if fields else {}
    stack = _stack(
        config,
        {**fields, "ffn": ffn},
        ("depth", "heads", "ffn"),
        width,
        norm="rms",
        norm_eps=1e-6,
        bias=False,
        gated=bool(fields.get("use_geglu", True)),
        **options,
    )
    return WaveSpec(stack, (), patch, overlap, frequencies=frequencies)


# Names of tensors.

_HEAD = (r"final_layer\..*", r"cls_query_token", r"patch_embedding\.mask_encoding")
_FUSED = ("query", "key", "value")


def _fused(target: str, source: str, layers: int, *, bias: bool, fused: str = ".") -> list[Rule]:
    """Return the rules of queries, keys and values that are stored as one dense layer."""
    parts = enumerate(_FUSED)
    return [
        rule
        for i, name in parts
        for rule in dense(f"{target}/{name}", source, layers, bias=bias, part=(i, 3), fused=fused)
    ]


def wave_table(eeg: EEGSpec) -> Table:
    """Return the table that maps the encoder's parameters to the tensor names of its own format."""
    waves = eeg.waves
    if waves is None or eeg.kind == "conv":
        raise ValueError(f"{eeg.kind} has no format of its own")
    rules = {"whisper": _whisper_rules, "labram": _labram_rules, "cbramod": _cbramod_rules, "reve": _reve_rules}
    ignored = (r"model\.encoder\.conv1\..*", r"(model\.decoder|proj_out)\..*") if eeg.kind == "whisper" else _HEAD
    return Table(CLASSES.get(eeg.kind, "Whisper"), tuple(rules[eeg.kind](waves)), ignored=ignored)


def _whisper_rules(waves: WaveSpec) -> list[Rule]:
    rules = dense(f"backbone/conv_{len(waves.strides) - 1}/convolution", "model.encoder.conv2")
    rules += whisper.side_rules("encoder", waves.stack)
    return [dataclasses.replace(rule, target=rule.target.replace("backbone/", "eeg/", 1)) for rule in rules]


def _stem_rules(waves: WaveSpec, names: Sequence[tuple[str, str]]) -> list[Rule]:
    rules = []
    for number, (convolution, group) in enumerate(names):
        rules += [*dense(f"eeg/stem/conv_{number}", convolution), *norm(f"eeg/stem/norm_{number}", group)]
    return rules


def _labram_rules(waves: WaveSpec) -> list[Rule]:
    layers, target, block = waves.stack.layers, "eeg/encoder/layers", "blocks.{layer}"
    stem = [(f"patch_embed.temporal_conv.conv{n}", f"patch_embed.temporal_conv.norm{n}") for n in (1, 2, 3)]
    rules = [
        *_stem_rules(waves, stem),
        Rule("eeg/first", "cls_token", squeeze=True),
        Rule("eeg/times", "temporal_embedding", squeeze=True),
        *norm("eeg/encoder/final_norm", "fc_norm" if waves.mean_pooling else "norm"),
        *_fused(f"{target}/self_attention", f"{block}.attn.qkv", layers, bias=False),
        *dense(f"{target}/self_attention/out", f"{block}.attn.proj", layers),
        *norm(f"{target}/self_norm", f"{block}.norm1", layers),
        *norm(f"{target}/ffn_norm", f"{block}.norm2", layers),
        *dense(f"{target}/ffn/inner", f"{block}.mlp.0", layers),
        *dense(f"{target}/ffn/outer", f"{block}.mlp.2", layers),
    ]
    if waves.rows:
        rules.append(Rule("eeg/places", "position_embedding", squeeze=True))
    if "query" in waves.stack.biases:
        for name in ("query", "value"):
            rules.append(Rule(f"{target}/self_attention/{name}/bias", f"{block}.attn.{name[0]}_bias", layers))
    if waves.stack.head_norm:
        for name in ("query", "key"):
            rules += norm(f"{target}/self_attention/{name}_norm", f"{block}.attn.{name[0]}_norm", layers)
    if waves.stack.layer_scale:
        for number, name in enumerate(("self_scale", "ffn_scale"), 1):
            rules.append(Rule(f"{target}/{name}", f"{block}.gamma_{number}", layers))
    return rules


def _cbramod_rules(waves: WaveSpec) -> list[Rule]:
    layers, source = waves.stack.layers, "encoder.layers.{layer}"
    stem = [
        (f"patch_embedding.proj_in.{3 * n}", f"patch_embedding.proj_in.{3 * n + 1}")
        for n in range(len(waves.convolutions))
    ]
    rules = [
        *_stem_rules(waves, stem),
        *dense("eeg/spectrum", "patch_embedding.spectral_proj.0"),
        *dense("eeg/positions", "patch_embedding.positional_encoding.0"),
        *dense("eeg/output", "proj_out.0"),
    ]
    for ours, theirs in (("channels", "self_attn_s"), ("times", "self_attn_t")):
        rules += _fused(f"eeg/layers/{ours}", f"{source}.{theirs}", layers, bias=True, fused=".in_proj_")
        rules += dense(f"eeg/layers/{ours}/out", f"{source}.{theirs}.out_proj", layers)
    for ours, theirs in (("inner", "linear1"), ("outer", "linear2")):
        rules += dense(f"eeg/layers/ffn/{ours}", f"{source}.{theirs}", layers)
    for ours, theirs in (("self_norm", "norm1"), ("ffn_norm", "norm2")):
        rules += norm(f"eeg/layers/{ours}", f"{source}.{theirs}", layers)
    return rules


def _reve_rules(waves: WaveSpec) -> list[Rule]:
    layers, target, source = waves.stack.layers, "eeg/encoder/layers", "transformer.layers.{layer}"
    rules = [
        *dense("eeg/patch", "to_patch_embedding.0"),
        *dense("eeg/place", "mlp4d.0", bias=False),
        *norm("eeg/place_norm", "mlp4d.2"),
        *norm("eeg/norm", "ln"),
        *norm(f"{target}/self_norm", f"{source}.0.norm", layers, bias=False),
        *_fused(f"{target}/self_attention", f"{source}.0.to_qkv", layers, bias=False),
        *dense(f"{target}/self_attention/out", f"{source}.0.to_out", layers, bias=False),
        *norm(f"{target}/ffn_norm", f"{source}.1.net.0", layers, bias=False),
        *dense(f"{target}/ffn/outer", f"{source}.1.net.3", layers, bias=False),
    ]
    for number, name in enumerate(("inner", "gate") if waves.stack.gated else ("inner",)):
        part = (number, 2 if waves.stack.gated else 1)
        rules += dense(f"{target}/ffn/{name}", f"{source}.1.net.1", layers, bias=False, part=part)
    return rules


def wave_sources(eeg: EEGSpec, name: str, shapes: Mapping[str, tuple[int, ...]]) -> dict[str, Source]:
    """Return where the encoder's parameters are read from in the folder `name`; `shapes` are those of parameters.

    Raises UserError if its tensors are not those that its configuration asks for.
    """
    folder = checkpoint_folder(name)
    return match(wave_table(eeg), read_tensors(folder), shapes, str(folder))


def trained_beside(eeg: EEGSpec) -> tuple[str, ...]:
    """Return the parts of an encoder of waves that its folder lacks, so that they are trained if the rest is frozen."""
    waves = eeg.waves
    stem = range(len(waves.strides) - 1 if waves is not None and eeg.kind == "whisper" else 0)
    return ("bridge", *(f"conv_{number}" for number in stem))


def write_wave_encoder(folder: Path, eeg: EEGSpec, params: Mapping[str, Any], samples: int, rate: float = 0.0) -> None:
    """Write the encoder into a new folder in braindecode's format, with adapters added to their kernels.

    `samples` is the length of recordings that braindecode's model is made for; it is filled up to whole patches. `rate`
    is their samples a second, if known. The classifier is missing, as there is none: `from_pretrained(folder,
    strict=False)` makes one with random weights.
    """
    waves = eeg.waves
    if waves is None or eeg.kind not in CLASSES:
        raise ValueError(f"braindecode has no {eeg.kind}")
    flat = {path: np.asarray(leaf, np.float32) for path, leaf in flatten({"eeg": dict(params)}).items()}
    for path in [path for path in flat if path.endswith("/lora_a")]:
        lora, base = waves.stack.lora, path.removesuffix("/lora_a")
        if lora is not None:
            flat[f"{base}/kernel"] = flat[f"{base}/kernel"] + flat[path] @ flat[f"{base}/lora_b"] * (
                lora.alpha / lora.rank
            )
    tensors = export(wave_table(eeg), flat)
    if eeg.kind == "cbramod":
        tensors["patch_embedding.mask_encoding"] = np.zeros(waves.patch, np.float32)
    folder.mkdir()
    write_safetensors(folder / "model.safetensors", tensors, {"format": "pt"})
    fields = {
        "n_outputs": 1,
        "n_chans": len(waves.used),
        "n_times": waves.patch + (count_patches(waves, samples) - 1) * (waves.patch - waves.overlap),
        "sfreq": rate or RATE,
        **_fields(eeg.kind, waves),
    }
    (folder / "config.json").write_text(json.dumps(fields, indent=2) + "\n", encoding="utf8")


def _fields(kind: str, waves: WaveSpec) -> dict[str, Any]:
    """Return the arguments of braindecode's class that describe the encoder; it rounds products of ratios down."""
    stack = waves.stack
    if kind == "labram":
        return {
            "n_times": (waves.times - 1) * waves.patch, "patch_size": waves.patch, "num_layers": stack.layers,
            "num_heads": stack.heads, "conv_out_channels": waves.convolutions[0].filters,
            "mlp_ratio": (stack.ffn + 0.5) / stack.width, "qkv_bias": "query" in stack.biases,
            "qk_norm": _ONLY["norm_layer"] if stack.head_norm else None, "qk_scale": stack.query_scale or None,
            "attn_head_dim": stack.head_dim, "init_values": stack.layer_scale or None,
            "use_abs_pos_emb": bool(waves.rows), "use_mean_pooling": waves.mean_pooling,
        }  # fmt: skip
    if kind == "cbramod":
        convolutions = [(*each[:4], (each.groups, each.filters)) for each in waves.convolutions]
        return {
            "patch_size": waves.patch, "n_layer": stack.layers, "nhead": stack.heads, "dim_feedforward": stack.ffn,
            "emb_dim": waves.outputs, "channels_kernel_stride_padding_norm": convolutions,
            "return_encoder_output": True,
        }  # fmt: skip
    return {
        "patch_size": waves.patch, "patch_overlap": waves.overlap, "depth": stack.layers, "heads": stack.heads,
        "head_dim": stack.head_dim, "embed_dim": stack.width, "mlp_dim_ratio": (stack.ffn + 0.5) / stack.width,
        "use_geglu": stack.gated, "freqs": waves.frequencies,
    }  # fmt: skip
