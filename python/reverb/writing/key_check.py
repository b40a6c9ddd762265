"""Compares the keys of the items that patterns and batched writers create with those of their tables' signatures."""

from collections.abc import Sequence
from typing import Any

from reverb import _binding
from reverb.data import signatures
from reverb.errors import UnavailableError


def fits_table(client: _binding.Client, table: str, nest: Any) -> bool:
    """Compares the keys of a nest with those of a table's signature.

    Args:
      client: Native client of the server.
      table: Name of the table.
      nest: Nest with the structure of the items.

    Returns:
      False if the server cannot be reached, so that nothing was compared.

    Raises:
      SignatureMismatchError: Keys are missing or unknown.
    """
    try:
        client.check_keys(table, nest)
    except UnavailableError:
        # The writer itself waits for its server, and reports its loss.
        return False
    return True


def patterns_fit_tables(client: _binding.Client, configs: Sequence[Any]) -> bool:
    """Compares the structures of patterns with the signatures of their tables; see `fits_table`.

    Args:
      client: Native client of the server.
      configs: Configs of the items.
    """
    nests = [(config.table, config.pattern_structure) for config in configs if config.HasField("pattern_structure")]
    return all(fits_table(client, table, signatures.decode(structure)) for table, structure in nests)
