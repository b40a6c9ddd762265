"""Where the reference keeps the messages of checkpoints."""
