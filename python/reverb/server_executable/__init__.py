"""The command `reverb_server`."""
