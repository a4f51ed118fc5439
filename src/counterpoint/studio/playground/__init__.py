"""Try: an image, some captions, and what models make of them at once."""
