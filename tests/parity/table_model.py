"""A PyTorch model whose logits are a table, for `transformers.generate` to search: the twin of `MarkovModel`.

Both sides read the same float32 numbers, so whatever differs is the search.
"""

import torch
from transformers import GenerationMixin, PretrainedConfig, PreTrainedModel
from transformers.modeling_outputs import CausalLMOutput


class TableConfig(PretrainedConfig):
    model_type = "markov-table"


class TableModel(PreTrainedModel, GenerationMixin):
    """`table [B, V, V, V]`: logits after the last two tokens, per sentence."""

    config_class = TableConfig
    main_input_name = "input_ids"
    _is_stateful = False

    def __init__(self, table):
        config = TableConfig(vocab_size=table.shape[-1], pad_token_id=1, eos_token_id=2, bos_token_id=0)
        super().__init__(config)
        self.anchor = torch.nn.Parameter(torch.zeros(1))
        self.table = torch.as_tensor(table)

    def forward(self, input_ids, attention_mask=None, **kwargs):
        rows = input_ids.shape[0] // self.table.shape[0]
        sentence = torch.arange(self.table.shape[0]).repeat_interleave(rows)
        before = input_ids[:, -2] if input_ids.shape[1] > 1 else torch.zeros_like(sentence)
        return CausalLMOutput(logits=self.table[sentence, before, input_ids[:, -1]][:, None, :])

    def prepare_inputs_for_generation(self, input_ids, **kwargs):
        return {"input_ids": input_ids}


@torch.no_grad()
def generate_by_torch(table, **settings):
    """Token ids `[B * num_return_sequences, <= max_length]` and beam scores or None."""
    start = torch.zeros((table.shape[0], 1), dtype=torch.long)
    settings = {"use_cache": False, "return_dict_in_generate": True, "output_scores": True} | settings
    out = TableModel(table).generate(start, attention_mask=torch.ones_like(start), **settings)
    return out.sequences.numpy(), getattr(out, "sequences_scores", None)
