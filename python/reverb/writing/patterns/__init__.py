"""Patterns: the writer that creates items from them, and the signatures of these items."""
