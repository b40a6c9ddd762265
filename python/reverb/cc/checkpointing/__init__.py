"""The protobuf messages of checkpoints, at the same path as in dm-reverb."""
