"""Our side of the area `datasets`: what the reference's programs do, word for word, with this package instead."""

from sides.reference_side import load_dataset, serve, stop

__all__ = ["load_dataset", "serve", "stop"]
