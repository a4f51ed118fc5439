"""Campaigns: people judge images and captions, and what they said becomes numbers and files."""
