"""Our side of the area `datasets`: the reference's programs, unchanged, with this package instead."""

from sides.reference_side import load_dataset, serve, stop

__all__ = ["load_dataset", "serve", "stop"]
