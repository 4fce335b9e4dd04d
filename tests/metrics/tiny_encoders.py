"""Checkpoint folders of random small text encoders with tokenizers, as transformers writes them."""

import json
import warnings
from pathlib import Path

import numpy as np
import tokenizers
import torch
import transformers

SENTENCES = [
    "The film was a quiet triumph, and nobody saw it.",
    "He was married in 1993 and moved to Paris.",
    "A dull, lifeless story about a café that never opens.",
    "She won the Nobel Prize in Physics.",
    "It is what it is.",
    "Nobody knew that the senator had been born in Ohio.",
    "Bright, funny and warm.",
    "The president of the company resigned on Monday, they said.",
]
OTHERS = [
    "The movie was a quiet success that nobody saw.",
    "He moved to Paris after his marriage.",
    "word",
    "She was given the prize for her work in physics.",
    "is it",
    "The senator was born in Ohio, which nobody knew.",
    "Bright, funny and warm.",
    "They said that the president resigned.",
]

KINDS = ("bert", "roberta", "t5", "bart", "pegasus")


def write_encoder(folder: Path, kind: str, *, layers: int = 2) -> Path:
    """A random model of `kind` with its tokenizer."""
    torch.manual_seed(3)
    tokenizer = _wordpiece() if kind == "bert" else _byte_pairs() if kind in ("roberta", "bart") else _unigram()
    size, pad = len(tokenizer), tokenizer.pad_token_id
    small = {"vocab_size": size, "pad_token_id": pad}
    hugging = {"hidden_size": 32, "num_hidden_layers": layers, "num_attention_heads": 4, "intermediate_size": 64}
    if kind == "bert":
        model = transformers.BertModel(transformers.BertConfig(**small, **hugging))
    elif kind == "roberta":
        fields = {"max_position_embeddings": 514, "type_vocab_size": 1, "layer_norm_eps": 1e-5}
        model = transformers.RobertaModel(transformers.RobertaConfig(**small, **hugging, **fields))
    elif kind == "t5":
        shape = {"d_model": 32, "d_kv": 8, "d_ff": 64, "num_layers": layers, "num_heads": 4}
        config = transformers.T5Config(**small, **shape, tie_word_embeddings=True)
        model = transformers.T5ForConditionalGeneration(config)
    else:
        shape = {"d_model": 32, "encoder_ffn_dim": 64, "decoder_ffn_dim": 64, "max_position_embeddings": 256}
        shape |= {f"{side}_{what}": n for side in ("encoder", "decoder") for what, n in SIZES.items()}
        shape |= {"encoder_layers": layers}
        config, maker = {
            "bart": (transformers.BartConfig, transformers.BartForConditionalGeneration),
            "pegasus": (transformers.PegasusConfig, transformers.PegasusForConditionalGeneration),
        }[kind]
        model = maker(config(**small, **shape))
    with torch.no_grad():
        for name, tensor in model.named_parameters():
            if tensor.requires_grad and "embed_positions" not in name:
                tensor.add_(torch.randn_like(tensor) * 0.1)
    model.eval().save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return folder


SIZES = {"layers": 1, "attention_heads": 4}


def _wordpiece() -> transformers.PreTrainedTokenizerFast:
    trained = tokenizers.BertWordPieceTokenizer(strip_accents=True)
    trained.train_from_iterator(SENTENCES, vocab_size=200, min_frequency=1, show_progress=False)
    return transformers.BertTokenizer(vocab=trained.get_vocab(), model_max_length=512)


def _byte_pairs() -> transformers.PreTrainedTokenizerFast:
    trained = tokenizers.ByteLevelBPETokenizer()
    special = ["<s>", "<pad>", "</s>", "<unk>", "<mask>"]
    trained.train_from_iterator(SENTENCES, vocab_size=320, min_frequency=1, special_tokens=special, show_progress=False)
    model = json.loads(trained.to_str())["model"]
    merges = [tuple(pair) if isinstance(pair, list) else tuple(pair.split(" ")) for pair in model["merges"]]
    return transformers.RobertaTokenizer(vocab=model["vocab"], merges=merges, model_max_length=512)


def _unigram() -> transformers.PreTrainedTokenizerFast:
    trained = tokenizers.SentencePieceUnigramTokenizer()
    named = {"pad_token": "<pad>", "eos_token": "</s>", "unk_token": "<unk>"}
    options = {"special_tokens": list(named.values()), "unk_token": "<unk>", "show_progress": False}
    trained.train_from_iterator(SENTENCES, vocab_size=150, **options)
    tokenizer = transformers.PreTrainedTokenizerFast(tokenizer_object=trained._tokenizer, model_max_length=512, **named)
    end = [("</s>", tokenizer.eos_token_id)]
    ended = tokenizers.processors.TemplateProcessing(single="$A </s>", special_tokens=end)
    tokenizer.backend_tokenizer.post_processor = ended
    return tokenizer


def bert_score(folder, layer, predictions, references, **options):
    """The package's figures, a pair at a time: in larger batches a masked token counts as similarity 0."""
    import bert_score as package

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        options |= {"model_type": str(folder), "num_layers": layer, "nthreads": 0, "batch_size": 1}
        figures = package.score(predictions, references, **options)
    return np.stack([figure.numpy() for figure in figures], axis=1)
