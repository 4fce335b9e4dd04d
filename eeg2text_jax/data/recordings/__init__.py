"""Read ZuCo 1.0 and 2.0 and Wang & Ji's pickles as samples, one file at a time."""
