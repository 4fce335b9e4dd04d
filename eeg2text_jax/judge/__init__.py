"""LATTEScore (Tomanek et al. 2023): a soft prompt on a frozen language model judges whether a text kept the meaning."""
