"""Code that the writers share: structures of steps, flushing, closing, and their construction by a client."""
