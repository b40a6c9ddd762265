"""Durable servers in processes of their own, which end in all ways and start again at their ports."""

import json
import os
import signal

from behaviour_support import PATIENCE_S, eventually, program

MODES = ("process", "power")

# Arguments: a folder, a port or 0, and options as JSON. It ends by a signal, or by a line that says so.
SERVER = """
    import json, sys, threading, reverb
    from reverb import rate_limiters, selectors
    folder, port, options = sys.argv[1], int(sys.argv[2]), json.loads(sys.argv[3])
    def table(name, sampler=selectors.Fifo, max_size=1000, max_times_sampled=0):
        return reverb.Table(
            name, sampler(), selectors.Fifo(), max_size, rate_limiters.MinSize(1), max_times_sampled=max_times_sampled
        )
    saving = {name: options.pop(name) for name in ("keep", "interval", "save_on_stop") if name in options}
    if "max_log_bytes" in options or "sync_interval" in options:
        options = {"durability": reverb.Durability(options.pop("durability"), **options)}
    server = reverb.Server(
        [
            table("replay", lambda: selectors.Prioritized(1.0)),
            reverb.Table.queue("queue", 1000),
            table("few", max_times_sampled=4),
            table("configured"),
            table("reset"),
            table("largest"),
            table("small", max_size=8),
        ],
        port=port or None,
        checkpointer=reverb.checkpointers.DefaultCheckpointer(folder, **saving),
        **options,
    )
    print(server.port, server.unix_path, server.http_port, flush=True)
    def stop():
        if sys.stdin.readline() == "stop\\n":
            server.stop(returns=True)
    threading.Thread(target=stop, daemon=True).start()
    server.wait()
"""
STATUS = {"kill": -signal.SIGKILL, "terminate": 128 + signal.SIGTERM, "stop": 0}


class DurableServer(program):
    """A durable server in a process of its own. A context manager that kills it on exit.

    Args:
      folder: Folder of its checkpoints and its log.
      mode: Mode of its durability; None is none.
      port: Port at which it listens; 0 is any.
      **options: Further options of `reverb.Durability` and of `DefaultCheckpointer`.
    """

    def __init__(self, folder, mode="process", port=0, **options):
        super().__init__(SERVER, folder, port, json.dumps({"durability": mode, **options}))
        try:
            port, self.unix_path, http_port = self.line().split()
        except AssertionError:
            self.kill()
            raise
        self.port, self.http_port = int(port), int(http_port)

    def address(self, road="tcp"):
        return f"ipv4:127.0.0.1:{self.port}" if road == "tcp" else f"unix:{self.unix_path}"

    def end_by(self, way):
        """Ends it: "kill", "terminate" or "stop"."""
        if way == "kill":
            self.process.kill()
        elif way == "terminate":
            self.process.terminate()
        else:
            self.process.stdin.write("stop\n")
            self.process.stdin.flush()
        assert self.process.wait(PATIENCE_S) == STATUS[way]


def items_of(client, table):
    """Returns the priority and `times_sampled` of each item of a table, at most 1000, by value."""
    # Items come in another order from tables that have no order.
    keys = [int(item.info.key[0]) for item in client.engine.peek(table, 1000, False, PATIENCE_S)]
    if not keys:
        return {}
    items, found = client.get(table, keys)
    assert found.all()
    values = items.data[0].ravel().tolist()
    assert len(set(values)) == len(values), f"twice: {sorted(values)}"
    info = items.info
    return dict(zip(values, zip(info.priority.tolist(), info.times_sampled.tolist(), strict=True), strict=True))


def values_of(client, table):
    return sorted(items_of(client, table))


def wait_for_receipts(client, table):
    """Waits until the server has the receipts of all that was drawn from a table."""
    eventually(lambda: client.server_info()[table].undelivered_samples == 0)


def segments(folder):
    """The names of the segments of the log in a folder."""
    return sorted(name for name in os.listdir(folder) if name.startswith("log-") and name.endswith(".rvlog"))
