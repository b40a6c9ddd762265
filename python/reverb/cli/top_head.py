"""The lines above the tables of `reverb top`: the verdict, and facts about the server or the shards."""

from collections.abc import Iterable, Iterator
from typing import Any

from rich.console import Console
from rich.text import Text

from reverb.cli import output
from reverb.cli import top_parts as parts
from reverb.cli.cluster_observing import ClusterObservation, Shard
from reverb.cli.observing import Observation
from reverb.logging.escaping import escaped

_HEAD, _ALARM, _FAINT = "bold", "red", "dim"


def lines(
    seen: Observation | ClusterObservation, address: str, console: Console, width: int, glyphs: parts.Glyphs
) -> list[Text]:
    """The verdict, the shards that are missing, and facts in lines that are filled as far as they fit.

    Args:
      seen: What is shown.
      address: Address of the server, as the user gave it.
      console: Where it is shown.
      width: Columns of the lines.
      glyphs: The characters of what stands between facts.
    """
    sentences = [Text(escaped(seen.verdict["line"]), style=output.LEVELS[seen.verdict["level"]])]
    if isinstance(seen, ClusterObservation):
        sentences += [Text(escaped(_missing(shard)), style=_ALARM) for shard in seen.shards if shard.seen is None]
        facts = _of_cluster(seen)
    else:
        facts = _of_server(seen, address)
    wrapped = [line for one in sentences for line in one.wrap(console, max(24, width), overflow="fold")]
    return wrapped + _flow(facts, width, glyphs.between)


def _missing(shard: Shard) -> str:
    name = shard.address if shard.id is None else f"{shard.name} at {shard.address}"
    return f"{name} is missing: {str(shard.error).removeprefix(f'no server at {shard.address}: ')}"


def _of_cluster(seen: ClusterObservation) -> Iterator[Text]:
    servers = [observed.server for _, observed in seen.present]
    versions = sorted({server["version"] for server in servers})
    yield Text(escaped(f"reverb {', '.join(versions)}"), style=_HEAD)
    is_whole = len(servers) == len(seen.shards)
    yield Text(f"{len(servers)} of {len(seen.shards)} shards", style="" if is_whole else _ALARM)
    for shard, observed in seen.present:
        if observed.server["state"] != "serving":
            yield Text(escaped(f"{shard.name} {observed.server['state']}"), style=_ALARM)
    ages = sorted(max(0.0, server["now"] - server["started_at"]) for server in servers)
    # One that has started again is told from the others.
    yield Text(f"up {' to '.join(dict.fromkeys(parts.seconds(age) for age in (ages[0], ages[-1])))}")
    yield from _load(servers)
    yield _oldest_checkpoint(seen)
    logs = [(shard, log) for shard, observed in seen.present if (log := observed.checkpoints.get("log"))]
    if logs:
        yield Text(f"logs {output.human_bytes(sum(log['size_bytes'] for _, log in logs))}")
    for shard, log in logs:
        if log["failure"] is not None or log["is_disk_low"]:
            yield Text(escaped(f"{shard.name} "), style=_ALARM).append_text(_log(log))


def _oldest_checkpoint(seen: ClusterObservation) -> Text:
    saved, unsaved = [], []
    for shard, observed in seen.present:
        if checkpoints := observed.checkpoints["checkpoints"]:
            saved.append((observed.now - checkpoints[0]["saved_at"], shard.name))
        else:
            unsaved.append(shard.label)
    if not saved:
        return Text("no checkpoint")
    if unsaved:
        return Text(escaped(f"no checkpoint of {parts.shards(unsaved)}"))
    age, name = max(saved)
    return Text(escaped(f"oldest checkpoint {parts.seconds(max(0.0, age))} ago, {name}"))


def _of_server(seen: Observation, address: str) -> Iterator[Text]:
    server = seen.server
    yield Text(escaped(f"reverb {server['version']}"), style=_HEAD)
    yield Text(escaped(f"{server['hostname'] or address} pid {server['pid']}"))
    if server["state"] != "serving":
        yield Text(escaped(server["state"]), style=_ALARM)
    yield Text(f"up {parts.seconds(max(0.0, server['now'] - server['started_at']))}")
    yield from _load([server])
    yield Text(escaped(f"gRPC {', '.join(server['addresses']) or '-'}"))
    yield Text(escaped(f"page {server['dashboard_url'] or 'off'}"))
    yield _checkpoint(seen)
    # Servers of earlier versions say nothing of it.
    if log := seen.checkpoints.get("log"):
        yield _log(log)


def _load(servers: Iterable[dict[str, Any]]) -> Iterator[Text]:
    told = [server["resident_bytes"] for server in servers if server["resident_bytes"] is not None]
    if told:
        yield Text(f"memory {output.human_bytes(sum(told))}")
    number = sum(server["connections"] for server in servers)
    yield Text(f"{number:,} connection{'' if number == 1 else 's'}")


def _checkpoint(seen: Observation) -> Text:
    store, now = seen.checkpoints, seen.server["now"]
    if store["saving"] is not None:
        return Text(f"checkpoint saving for {parts.seconds(max(0.0, now - store['saving']['since']))}")
    if not store["checkpoints"]:
        return Text("no checkpoint")
    newest = store["checkpoints"][0]
    age = parts.seconds(max(0.0, now - newest["saved_at"]))
    return Text(f"checkpoint {age} ago, {output.human_bytes(newest['size_bytes'])}")


def _log(log: dict[str, Any]) -> Text:
    low = ", too little free space" if log["is_disk_low"] else ""
    # The verdict says why.
    if log["failure"] is not None:
        return Text(f"log closed{low}", style=_ALARM)
    age = log["sync_age_seconds"]
    synced = f"unsynced for {parts.seconds(age)}" if age else "all synced"
    return Text(escaped(f"log ({log['mode']}) {output.human_bytes(log['size_bytes'])}, {synced}{low}"))


def _flow(facts: Iterator[Text], width: int, between: str) -> list[Text]:
    """Facts in lines that are filled as far as they fit."""
    lines: list[Text] = []
    for fact in facts:
        if lines and lines[-1].cell_len + len(between) + fact.cell_len <= width:
            lines[-1].append(between, style=_FAINT).append_text(fact)
        else:
            # A base style would apply to what is appended.
            lines.append(Text().append_text(fact))
    return lines
