"""Checks of what was made from a caption, whatever made it: rules, a language model, a file."""
