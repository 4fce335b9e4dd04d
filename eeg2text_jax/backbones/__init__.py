"""Language models: their descriptions and the names in their checkpoints.

BART, BERT2BERT, PEGASUS and T5 have an encoder, and a module each; Llama, Mistral, Qwen and Gemma are decoders alone,
and entries of `decoder_only.MODELS`.
"""

ENCODER_DECODERS = ("bart", "bert2bert", "pegasus", "t5")
DECODERS = ("gemma", "gemma2", "gemma3", "llama", "mistral", "qwen2", "qwen3")
# Projections that may have an adapter, by their names in checkpoints, and here.
LORA_TARGETS = {
    "q_proj": "query",
    "k_proj": "key",
    "v_proj": "value",
    "o_proj": "out",
    "gate_proj": "gate",
    "up_proj": "inner",
    "down_proj": "outer",
}
BACKBONES = (*ENCODER_DECODERS, *DECODERS)
