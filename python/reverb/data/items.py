"""Makers that turn batches of the extension into the samples that programs receive."""

from typing import Any

from reverb._binding import BatchMaker
from reverb.data import nests, signatures


def sample_maker(signature: Any, signature_token: int = 0) -> BatchMaker:
    """A maker of samples whose data have the structure of a signature.

    Args:
      signature: Nest of a table's specs. None makes samples whose data are flat lists of columns.
      signature_token: Token of the extension that identifies the signature; 0 for a table without one.
    """
    if signature is None:
        return BatchMaker(signature_token=signature_token)
    keys = nests.flat_keys(signature)
    pack = nests.compile_packer(signature) if keys is None else None
    specs = signatures.flat_specs(signature) or []
    # A signature of unknown rank does not tell which columns have a time axis.
    unknown = [(place, len(dims)) for place, (_, _, dims) in enumerate(specs) if dims and dims[0] < 0]
    return BatchMaker(signature_token=signature_token, keys=keys, pack=pack, unknown_lengths=unknown)
