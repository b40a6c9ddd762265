"""Counts the items that the writers of this process have sent to a server, or will send, and that are not confirmed."""

import re
from collections.abc import Iterable

from reverb import _binding
from reverb.reverb_types import TableInfo

_LOOPBACK = re.compile(r"(ipv4:|ipv6:|dns:(///)?)?(localhost|127\.0\.0\.1|\[::1\]):")


def add_unconfirmed(infos: Iterable[TableInfo], address: str) -> None:
    """Sets `unconfirmed_items` and `unconfirmed_bytes` of a server's infos.

    Args:
      infos: Infos of the server's tables.
      address: Address of the server, as its clients have got it. All names of loopback are taken as one.
    """
    known = {info.name: info for info in infos}
    for other, items, size in _binding.unconfirmed():
        if _same_names(other) != _same_names(address):
            continue
        for table in items.keys() & known.keys():
            known[table].unconfirmed_items += items[table]
            known[table].unconfirmed_bytes += size


def _same_names(address: str) -> str:
    return _LOOPBACK.sub("localhost:", address, count=1) if _LOOPBACK.match(address) else address
