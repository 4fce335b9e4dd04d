"""BART, BERT2BERT, PEGASUS and T5: a module each, with its description and the names in its checkpoints."""

BACKBONES = ("bart", "bert2bert", "pegasus", "t5")  # modules here
