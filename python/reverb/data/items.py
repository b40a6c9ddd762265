"""Makers that turn batches of the extension into the samples that programs receive."""

from collections.abc import Sequence
from typing import Any

from reverb._binding import BatchMaker
from reverb.data import nests, signatures
from reverb.data.fields import select


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


def chosen_maker(signature: Any, columns: Sequence[Any] | None) -> tuple[list[int], BatchMaker]:
    """The numbers of columns, and a maker of samples that have these columns alone.

    Args:
      signature: Nest of a table's specs; None for a table without a signature, whose columns are chosen by number.
      columns: Columns to choose, as keys or paths of the signature, or as numbers of a list. None chooses all, without
        their numbers.

    Raises:
      ValueError: There is no column, or one that does not exist.
    """
    if columns is None:
        return [], sample_maker(signature)
    if not columns:
        raise ValueError("`columns` must name at least one column; None reads all of them.")
    if signature is None:
        if not all(isinstance(column, int) and column >= 0 for column in columns):
            raise ValueError(f"The table has no signature, so `columns` must be numbers of columns, got {columns!r}.")
        return list(columns), sample_maker(None)
    whole = sample_maker(signature)
    specs = signatures.flat_specs(signature) or []
    selection = select(whole.data(list(range(len(specs)))), columns, "columns")
    num_axes = dict(whole.unknown_lengths)
    places = [(place, num_axes[column]) for place, column in enumerate(selection.columns) if column in num_axes]
    maker = BatchMaker(keys=selection.keys, pack=selection.pack, unknown_lengths=places)
    return selection.columns, maker
