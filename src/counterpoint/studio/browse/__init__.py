"""Browse: the runs of a folder, their cases, and one case under every model."""
