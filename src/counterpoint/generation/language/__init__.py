"""What is known of English: tags, words and their meanings, edits that stay grammatical."""
