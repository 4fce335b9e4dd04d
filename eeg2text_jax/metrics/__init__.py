"""BLEU, ROUGE and WER with a signature on every number."""
