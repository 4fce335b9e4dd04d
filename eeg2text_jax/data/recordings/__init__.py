"""Files of recorded reading (ZuCo 1.0 and 2.0, Wang & Ji's pickles) -> samples, one subject file at a time."""
