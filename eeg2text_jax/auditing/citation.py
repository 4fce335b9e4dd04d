"""What to cite, as BibTeX."""

from eeg2text_jax.versions import __version__

BIBTEX = f"""\
@software{{eeg2text_jax,
  title = {{eeg2text\\_jax: train, decode and judge EEG-to-text models in JAX}},
  author = {{{{eeg2text\\_jax contributors}}}},
  version = {{{__version__}}}
}}
@article{{jo2024eegtotext,
  title = {{Are {{EEG}}-to-Text Models Working?}},
  author = {{Jo, Hyejeong and Yang, Yiqian and Han, Juhyeok and Duan, Yiqun and Xiong, Hui and Lee, Won Hee}},
  journal = {{arXiv preprint arXiv:2405.06459}},
  year = {{2024}},
  url = {{https://arxiv.org/abs/2405.06459}}
}}
"""
