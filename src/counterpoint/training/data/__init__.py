"""Training data: pairs files, WebDataset shards, and the world drawn on the fly."""
