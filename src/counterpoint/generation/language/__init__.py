"""English: tags, words and their meanings, and edits that stay grammatical."""
