"""Where files come from: the data root, the catalogue of sources, downloads."""
