"""The studio: pages to browse runs, try models and annotate. Imported when asked for."""
