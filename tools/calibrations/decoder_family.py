"""Audits a family of simulated decoders, from the poorest to one without errors: every one that works must pass.

    python tools/calibrations/decoder_family.py

Decoders that drop and add words, and decoders that read word by word, of frequent words and of rare ones; 1, 10 and 18
readers of 104 sentences; alone, against their own outputs over other sentences and against noise; in files that state
their mode and in files that do not. Content grows along a row of the table. Fifteen minutes on one core. Of one reader,
2 to 3 points are near the minimum detectable effect.
"""

import argparse
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))  # tools/

from eeg2text_jax.auditing.audit import audit
from eeg2text_testing.decoders import decoded, exchanged, unsaid, word_by_word, written

READERS = (1, 10, 18)
RIGHT = (0.03, 0.06, 0.1, 0.2, 0.35, 0.5, 0.65, 0.8, 0.9, 0.96)
# Decoder, and exponent of the frequencies of words.
KINDS = {"any length": (decoded, 0.5), "word by word": (word_by_word, 0.5), "rare words": (decoded, 0.1)}
CLAIMED = 2.0  # points of content from which a decoder must be seen


def verdicts(kind: str, readers: int, right: float) -> tuple[float, dict[str, str]]:
    """Content of one decoder, and what is said of it in each setting."""
    decoder, tail = KINDS[kind]
    noise, vocabulary = written(readers, sentences=104, tail=tail)
    rows = decoder(noise, vocabulary, right)
    controls = {"none": {}, "exchanged": {"exchanged": exchanged(rows)}, "noise": {"noise": noise}}
    found = {name: audit(rows, given) for name, given in controls.items()}
    silent = {name: unsaid(given) for name, given in (("noise", noise),)}
    said = {name: result.verdict.base.value for name, result in found.items()}
    said["none, not stated"] = audit(unsaid(rows), {}).verdict.base.value
    said["noise, not stated"] = audit(unsaid(rows), silent).verdict.base.value
    return found["none"].deciding.contrast.effect, said


def expected(setting: str) -> str:
    if "not stated" in setting:
        return "content of unproven origin"
    return "content above its null" if setting == "none" else "uses EEG"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--readers", type=int, nargs="+", default=READERS)
    parser.add_argument("--right", type=float, nargs="+", default=RIGHT, help="shares of words that are right")
    flags = parser.parse_args()
    wrong = 0
    for kind in KINDS:
        for readers in flags.readers:
            contents = []
            for right in flags.right:
                content, said = verdicts(kind, readers, right)
                contents.append(content)
                others = {s: v for s, v in said.items() if v != expected(s)}
                wrong += len(others) if content >= CLAIMED else 0
                verdict = others or "all as they should"
                print(f"{kind:12} {readers:3} readers, content {content:+6.2f}: {verdict}", flush=True)
            if contents != sorted(contents):
                wrong += 1
                print(f"{kind:12} {readers:3} readers: content does not grow with quality")
    print(f"{wrong} verdicts that should be others, of decoders with {CLAIMED:g} points of content or more")
    return min(wrong, 1)


if __name__ == "__main__":
    sys.exit(main())
