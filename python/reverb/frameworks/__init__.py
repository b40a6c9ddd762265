"""Arrays of other frameworks, for loaders and buffers. Only the modules named after a framework import it."""
