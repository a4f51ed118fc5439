"""Playground: one image, some captions, and the scores of several models."""
