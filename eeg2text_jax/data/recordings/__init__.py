"""Read ZuCo 1.0 and 2.0 and Wang & Ji's pickles into samples, one subject file at a time."""
