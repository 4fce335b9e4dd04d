"""Predictions of any layout, as rows; cells of one mode and condition each."""
