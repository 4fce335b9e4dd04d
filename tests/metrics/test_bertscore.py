"""BERTScore against the package bert-score, on random encoders of every kind; see `tiny_encoders`."""

import importlib.util

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import torch
import transformers
from tiny_encoders import KINDS, OTHERS, SENTENCES, bert_score, write_encoder

from eeg2text_jax.judge._meaning import BertScore, Embedded, MeaningMetrics, match_tables, read_baseline
from eeg2text_jax.models.pretrained import encoders
from eeg2text_jax.models.pretrained.encoders import TextEmbedder, load_encoder, plan_batches

needs_bert_score = pytest.mark.skipif(not importlib.util.find_spec("bert_score"), reason="bert-score is not installed")


@pytest.fixture(scope="module")
def folders(tmp_path_factory):
    root = tmp_path_factory.mktemp("encoders")
    return {kind: write_encoder(root / f"tiny-{kind}", kind) for kind in KINDS}


def their_hidden(folder, kind, layer, ids):
    """PyTorch's hidden states after `layer`, cut as bert-score cuts them: what follows the last layer stays."""
    model = transformers.AutoModel.from_pretrained(folder).eval()
    encoder = model.get_encoder() if hasattr(model, "decoder") else model.encoder
    stack = "block" if kind == "t5" else "layers" if kind in ("bart", "pegasus") else "layer"
    setattr(encoder, stack, torch.nn.ModuleList(list(getattr(encoder, stack))[:layer]))
    whole = encoder if hasattr(model, "decoder") else model
    with torch.no_grad():
        return whole(input_ids=torch.tensor(ids)[None].long()).last_hidden_state[0].numpy()


@pytest.mark.quick("bart-0", "t5-1", "roberta-2", "pegasus-2", "bert-1")
@pytest.mark.parametrize("layer", [0, 1, 2])
@pytest.mark.parametrize("kind", KINDS)
def test_hidden_states_are_those_of_pytorch(folders, kind, layer):
    loaded = load_encoder(folders[kind], layer)
    embedder = TextEmbedder(loaded)
    ids = embedder.tokens(SENTENCES)
    batch = np.full((2, 40), loaded.encoder.spec.pad_token, np.int32)  # the second row is shorter: padding is masked
    for row in range(2):
        batch[row, : len(ids[row])] = ids[row]
    mask = np.arange(40)[None] < np.array([[len(ids[0])], [len(ids[1])]])
    hidden = jax.jit(loaded.encoder.hidden)(loaded.params, jnp.asarray(batch), jnp.asarray(mask))
    for row in range(2):
        expected = their_hidden(folders[kind], kind, layer, ids[row])
        np.testing.assert_allclose(np.asarray(hidden)[row, : len(ids[row])], expected, atol=1e-5)


LONG = " ".join(["the quiet film was never seen"] * 100)  # 600 words: cut by both sides


@pytest.mark.quick("roberta-True", "t5-False")
@needs_bert_score
@pytest.mark.parametrize("idf", [False, True])
@pytest.mark.parametrize("kind", ["bert", "roberta", "t5"])
def test_figures_are_those_of_bert_score(folders, kind, idf):
    predictions, references = [*OTHERS, LONG, SENTENCES[0]], [*SENTENCES, SENTENCES[1], LONG]
    for layer in (0, 2) if idf else (0, 1, 2):
        loaded = load_encoder(folders[kind], layer)
        if kind == "roberta":  # under transformers 5 bert-score asks in vain for the space before the first word
            loaded = loaded._replace(tokenizer=transformers.AutoTokenizer.from_pretrained(folders[kind]))
        metric = BertScore(TextEmbedder(loaded), references=references if idf else None)
        ours = metric.statistics(predictions, references)[:, :3]
        theirs = bert_score(folders[kind], layer, predictions, references, idf=idf)
        np.testing.assert_allclose(ours, theirs, atol=2e-5)


@needs_bert_score
def test_rescaled_figures_are_those_of_bert_score(folders, tmp_path):
    path = tmp_path / "baseline.tsv"
    path.write_text("LAYER,P,R,F\n0,0.1,0.2,0.3\n1,0.2,0.2,0.2\n2,0.31,0.42,0.53\n")
    metric = BertScore(TextEmbedder(load_encoder(folders["bert"], 2)), baseline=read_baseline(path, 2))
    options = {"lang": "en", "rescale_with_baseline": True, "baseline_path": str(path)}
    expected = bert_score(folders["bert"], 2, OTHERS, SENTENCES, **options)
    found = list(metric.score(OTHERS, SENTENCES).values())
    np.testing.assert_allclose(found, 100 * expected.mean(0), atol=100 * 2e-5 / (1 - 0.53))
    assert "rescale:baseline,layer-2" in metric.signature


def test_worked_example_of_similarities():
    """The table in the notes on BERTScore: R .6124, P .65525."""
    table = np.array(
        [
            [0.713, 0.369, 0.428, 0.404, 0.347],
            [0.360, 0.369, 0.515, 0.441, 0.316],
            [0.428, 0.515, 0.342, 0.433, 0.347],
            [0.360, 0.316, 0.428, 0.404, 0.878],
        ],
        np.float32,
    )
    sides = (np.eye(4, dtype=np.float32), table.T)
    prediction, reference = (Embedded(states, np.full(len(states), 1 / len(states), np.float32)) for states in sides)
    found = match_tables([prediction], [reference])
    np.testing.assert_allclose(found[0, 0], [0.65525, 0.6124, 0.63310], atol=1e-5)


def test_table_of_pairs_rows_and_batch_mates_agree(folders, monkeypatch):
    loaded = load_encoder(folders["bert"])
    metric = BertScore(TextEmbedder(loaded))
    table = metric.pairwise(OTHERS, SENTENCES)
    with monkeypatch.context() as patch:  # a row at a time, and a cache for one text
        patch.setattr("eeg2text_jax.judge._meaning.SIMILARITIES", 1)
        patch.setattr("eeg2text_jax.judge._meaning.CACHE_BYTES", 4000)
        np.testing.assert_allclose(metric.pairwise(OTHERS, SENTENCES), table, atol=1e-6)
        assert sum(text.states.nbytes for text in metric._known.values()) == metric._bytes <= 4000
    rows = BertScore(TextEmbedder(loaded)).statistics(OTHERS, SENTENCES)
    np.testing.assert_allclose(table[range(8), range(8)], rows, atol=1e-6)
    alone = [BertScore(TextEmbedder(loaded)).statistics([p], [r])[0] for p, r in zip(OTHERS, SENTENCES, strict=True)]
    np.testing.assert_allclose(alone, rows, atol=1e-6)
    swapped = BertScore(TextEmbedder(loaded)).statistics(SENTENCES, OTHERS)
    np.testing.assert_allclose(swapped[:, [1, 0, 2]], rows[:, :3], atol=1e-6)
    np.testing.assert_allclose(rows[6, :3], 1, atol=1e-6)  # the same text on both sides


def test_blank_text_scores_zero_and_long_text_is_cut(folders):
    embedder = TextEmbedder(load_encoder(folders["bert"]))
    metric = BertScore(embedder)
    found = metric.statistics(["", "  ", "word", " ".join(["word"] * 600)], ["a film", "", "", "word"])
    np.testing.assert_array_equal(found[:3, :3], 0)
    np.testing.assert_array_equal(metric.pairwise(["", "word"], ["", "film"])[..., :3].any(-1), [[0, 0], [0, 1]])
    assert found[3, 1] > 0.5
    assert embedder.cut == 1
    assert embedder.max_tokens == 512
    short = TextEmbedder(load_encoder(folders["bart"]))  # fewer positions than its tokenizer says
    (ids,) = short.tokens([" ".join(["word"] * 600)])
    assert len(ids) == short.max_tokens == short.loaded.encoder.spec.stack.max_positions <= 256
    assert np.isfinite(short.states([ids])[0]).all()


def test_what_rescaling_makes_of_blank_text_is_said_once_for_all_cells(folders, tmp_path):
    path = tmp_path / "baseline.tsv"
    path.write_text("LAYER,P,R,F\n2,0.31,0.42,0.45\n")
    plain = MeaningMetrics(["bertscore"], folders["bert"], layer=2)
    rescaled = MeaningMetrics(["bertscore"], folders["bert"], layer=2, rescale=path)
    for makers in (plain, rescaled):
        for predictions in (["", "word"], ["word", "word"], ["", "  "]):
            (metric,) = makers(["a film", "word"])
            figures = metric.score(predictions, ["a film", "word"])
    assert figures["bertscore-f"] == pytest.approx(-100 * 0.45 / 0.55)
    assert "empty:zero-before-rescaling" in metric.signature
    assert plain.notes() == []
    (note,) = rescaled.notes()
    assert "2 distinct pairs have a blank side; they score 0" in note
    assert "--rescale turns into P -44.9, R -72.4, F -81.8" in note


def test_one_device_equals_eight(folders):
    loaded = load_encoder(folders["roberta"])
    embedder = TextEmbedder(loaded)
    assert jax.local_device_count() == 8
    states = embedder.states(embedder.tokens(SENTENCES))
    compiled = jax.jit(loaded.encoder.hidden)
    for number, (ids, state) in enumerate(zip(embedder.tokens(SENTENCES), states, strict=True)):
        width = 40 if number else len(ids)  # the first without any padding; each length compiles
        row = np.pad(ids, (0, width - len(ids)), constant_values=loaded.encoder.spec.pad_token)
        alone = compiled(loaded.params, jnp.asarray(row[None]), jnp.arange(width)[None] < len(ids))[0, : len(ids)]
        np.testing.assert_allclose(state, np.asarray(alone), atol=1e-5)


def test_texts_compile_once_a_bucket(folders):
    embedder = TextEmbedder(load_encoder(folders["roberta"], 1))
    texts = [" ".join(SENTENCES[:n]) for n in range(1, 9)]
    lengths = list(map(len, embedder.tokens(texts)))
    used = {(width, rows) for _, width, rows in plan_batches(lengths, 8)}
    before = encoders._encode._cache_size()
    embedder.states(embedder.tokens(texts))
    assert encoders._encode._cache_size() - before == len(used) == len({width for width, _ in used}) > 1
    embedder.forget()
    embedder.states(embedder.tokens(texts[::-1]))
    assert encoders._encode._cache_size() - before == len(used)


def test_signature_names_weights_layer_and_conventions(folders):
    signature = BertScore(TextEmbedder(load_encoder(folders["roberta"]))).signature
    assert signature.startswith("model:tiny-roberta[sha256:")
    assert "|layer:2,untuned|max:512|prefix-space:yes|idf:no|" in signature
    assert "|layer:1|" in BertScore(TextEmbedder(load_encoder(folders["roberta"], 1))).signature
