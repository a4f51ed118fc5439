"""Checks of a text that was made from a caption, whatever made it."""
