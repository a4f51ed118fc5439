"""Generative vision-language models of transformers: P(yes) or the likelihood of a caption."""
