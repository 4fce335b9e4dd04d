"""Files of predictions: the project's own, foreign layouts, and the choice of conditions in them."""
