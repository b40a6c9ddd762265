"""The addresses of shards as one address."""

from collections.abc import Iterable

__all__ = ["as_address", "each_address", "with_shard"]

_TLS = "grpcs://"
_ALWAYS_TCP = ("ipv4:", "ipv6:")
_EXPECTED = (
    'expected "host:port", "host:port,host:port", "ipv4:host:port,host:port" or "dns:///name:port", with grpcs:// in '
    "front for TLS, or a list of addresses"
)


def as_address(addresses: object) -> str:
    """The one address of shards that a user named by a str or by a list of them.

    Raises:
      TypeError: It is neither.
      ValueError: It is empty, an address of a list names several shards, or those of a list begin differently.
    """
    if isinstance(addresses, str):
        return _without_unix(addresses)
    if not isinstance(addresses, Iterable) or isinstance(addresses, (bytes, bytearray)):
        raise TypeError(f"addresses: {_EXPECTED}, got {addresses!r} ({type(addresses).__name__})")
    each = list(addresses)
    if not each:
        raise ValueError(f"addresses: {_EXPECTED}, got an empty list")
    for address in each:
        if not isinstance(address, str):
            raise TypeError(f"addresses: {_EXPECTED}, got {address!r} ({type(address).__name__}) in a list")
        if len(each) > 1 and ("," in address or _split(address)[1].startswith("dns:")):
            raise ValueError(f"addresses: expected the address of one shard, got {address!r} in a list")
    starts = {_start(_without_unix(address)) for address in each}
    if len(starts) > 1:
        raise ValueError(f"addresses: expected addresses that begin alike, got {', '.join(map(repr, each))}")
    (start,) = starts
    return start + ",".join(address.removeprefix(start) for address in each)


def each_address(address: str) -> list[str]:
    """The address of each shard of a cluster that was named by a list of them."""
    start = _start(address)
    return [start + one for one in address.removeprefix(start).split(",")]


def with_shard(address: str, added: object) -> str:
    """The address of a cluster with another shard; the same address if it has that one.

    Raises:
      TypeError: The added one is not a str.
      ValueError: The cluster has a name whose addresses are its shards, or the added one is no address of one shard.
    """
    if not isinstance(added, str):
        raise TypeError(f"address: expected the address of a shard, host:port, got {added!r} ({type(added).__name__})")
    if _split(address)[1].startswith("dns:"):
        raise ValueError(f"the shards of {address} are the addresses of that name: add the shard there")
    listed = each_address(address)
    # The others say whether it is over TLS, and whether always over TCP.
    new = _like(_start(address), added)
    return address if new in listed else as_address([*listed, new])


def _like(start: str, added: str) -> str:
    return added if _start(added) else start + added


def _split(address: str) -> tuple[str, str]:
    tls = _TLS if address.startswith(_TLS) else ""
    return tls, address.removeprefix(tls)


def _start(address: str) -> str:
    """What an address begins with before its host."""
    tls, rest = _split(address)
    return tls + next((scheme for scheme in _ALWAYS_TCP if rest.startswith(scheme)), "")


def _without_unix(address: str) -> str:
    if _split(address)[1].startswith("unix:"):
        raise ValueError(
            f"addresses: expected shards by their ports, got {address!r}: a shard of this machine whose address is "
            "host:port is reached by its Unix socket anyway"
        )
    return address
