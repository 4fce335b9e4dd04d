"""Train, dev and test: the methods, what they leak, and the file that certifies a split."""
