"""What may be wrong with the folder of a judge, each with words of the sentence that refuses it."""

import json


def change(folder, **fields):
    content = json.loads((folder / "judge.json").read_text())
    content.update(fields)
    (folder / "judge.json").write_text(json.dumps(content))


HOSTILE = {
    "no judge.json": (lambda d: (d / "judge.json").unlink(), "there is no such file"),
    "no JSON": (lambda d: (d / "judge.json").write_text("{"), "is not JSON"),
    "deep": (lambda d: (d / "judge.json").write_text("[" * 100_000), "is not JSON"),
    "a list": (lambda d: (d / "judge.json").write_text("[]"), "has the format 'list'"),
    "another format": (lambda d: change(d, format=2), "has the format 2; expected 1"),
    "a threshold": (lambda d: change(d, threshold=7), "the threshold is 7.0"),
    "a threshold of true": (lambda d: change(d, threshold=True), "threshold is True"),
    "a threshold of text": (lambda d: change(d, threshold="1"), "threshold is '1'"),
    "a template": (lambda d: change(d, wording={"name": "x", "template": "{reference.__class__}"}), "lacks {ref"),
    "labels": (lambda d: change(d, labels={"words": ["yes"], "ids": [[3]]}), "labels are not two words"),
    "a negative id": (lambda d: change(d, labels={"words": ["yes", "no"], "ids": [[-3], [5]]}), "labels are not"),
    "no ids": (lambda d: change(d, labels={"words": ["yes", "no"], "ids": [[], [5]]}), "labels are not two words"),
    "other ids": (lambda d: change(d, labels={"words": ["yes", "no"], "ids": [[3], [5]]}), "has other token ids"),
    "an exact": (lambda d: change(d, exact="maybe"), "exact is 'maybe'"),
    "a source": (lambda d: change(d, source="people"), "source is 'people'"),
    "weights": (lambda d: change(d, weights_sha256="f" * 64), "was tuned on other weights"),
    "tokenizer": (lambda d: change(d, tokenizer="x"), "was tuned on other tokenizer"),
    "a changed threshold": (lambda d: change(d, threshold=0.25), "was changed since it was written"),
    "a checkpoint": (lambda d: change(d, checkpoint="../nowhere"), "there is no such folder"),
    "no prompt": (lambda d: (d / "prompt.safetensors").unlink(), "there is no such file"),
    "a pickle": (lambda d: (d / "prompt.safetensors").write_bytes(b"\x80\x04cos\nsystem\n."), "prompt.safetensors"),
}  # fmt: skip
