"""Matches the items that patterns and batched writers create with the signatures of their tables."""

from collections.abc import Sequence
from typing import Any, Protocol

from reverb.data import signatures, structures
from reverb.errors import UnavailableError


class KeyChecker(Protocol):
    """What knows the signatures of a server's tables, or asks for them."""

    def check_keys(self, table: str, data: object, /) -> list[int]:
        """Compares the keys of data with the signature of a table; see `_rust.Client.check_keys`.

        Args:
          table: Name of the table.
          data: Nest with the structure of the items.
        """


def order_in_table(client: KeyChecker, table: str, nest: Any) -> list[int] | None:
    """Compares the keys of a nest with those of a table's signature.

    Args:
      client: Native client of the server, or what else knows the signatures.
      table: Name of the table.
      nest: Nest with the structure of the items.

    Returns:
      For each column of the table the number of its leaf, and nothing if leaves are matched by position. None if the
      server cannot be reached, so that nothing was compared.

    Raises:
      SignatureMismatchError: Keys are missing or unknown.
      UnavailableError: The server cannot be reached, and the nest has fields whose order depends on the signature.
    """
    try:
        return client.check_keys(table, nest)
    except UnavailableError:
        if structures.has_fields(nest):
            raise
        # The writer itself waits for its server, and reports its loss.
        return None


def pattern_orders(client: KeyChecker, configs: Sequence[Any]) -> list[list[int]] | None:
    """Compares the structures of patterns with the signatures of their tables; see `order_in_table`.

    Args:
      client: Native client of the server, or what else knows the signatures.
      configs: Configs of the items.

    Returns:
      The order of the columns of each config; None if the server cannot be reached.
    """
    orders = []
    for config in configs:
        order: list[int] | None = []
        if config.HasField("pattern_structure"):
            order = order_in_table(client, config.table, signatures.decode(config.pattern_structure))
        if order is None:
            return None
        orders.append(order)
    return orders
