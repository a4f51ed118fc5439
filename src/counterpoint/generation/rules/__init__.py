"""Rules: texts made from a parsed caption and chance, no model asked."""
