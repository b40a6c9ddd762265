"""Arrays of other frameworks, for loaders and buffers, and a table as TorchRL's programs use a buffer.

Only the modules named after a framework import it.
"""
