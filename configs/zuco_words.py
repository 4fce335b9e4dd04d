"""The real word-feature table of ZuCo: its eight EEG columns, averaged over subjects and binned.

`eeg2text run --config=configs/zuco_words.py --config.data.source=TABLE.tsv --workdir=DIR` takes a few minutes on two
CPU cores; expect the noise arm to score as the EEG arm does. The table's gaze columns follow word length and
frequency, so they are a condition of their own: `--config.data.table.feature_columns=1,2,3`.
"""

from ml_collections import ConfigDict

from configs import default

GAZE_COLUMNS = tuple(range(1, 18))
EEG_COLUMNS = tuple(range(18, 26))


def get_config() -> ConfigDict:
    c = default.get_config()
    c.data.source = "zuco_word_features.tsv"
    c.data.table.feature_columns = EEG_COLUMNS
    c.data.table.features_are = "8 EEG bands, averaged over subjects, binned to 0-7"
    c.text.vocab_size = 2000
    c.batch.buckets = ((24, 56), (56, 56))
    c.model.encoder_layers = 2
    c.model.encoder_width = 64
    c.model.encoder_ffn = 256
    c.model.shape = {
        "d_model": 128,
        "encoder_layers": 2,
        "decoder_layers": 2,
        "encoder_attention_heads": 4,
        "decoder_attention_heads": 4,
        "encoder_ffn_dim": 256,
        "decoder_ffn_dim": 256,
        "max_position_embeddings": 64,
    }
    c.train.steps = 300
    c.train.eval_every = 30
    c.parallel.arms = "map"
    return c
