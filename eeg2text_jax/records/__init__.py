"""Export results, predictions and data in formats of other tools."""
