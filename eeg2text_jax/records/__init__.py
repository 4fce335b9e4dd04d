"""Export results, predictions and data in formats that other tools load."""
