"""Kills a durable server at random moments (kill -9) while clients work, and checks what is there after each kill.

    python tests/kills/killed_servers.py                                          # 500 kills, half in each mode
    python tests/kills/killed_servers.py --kills 20 --modes power --record /tmp/record.json

Clients write, draw, change priorities, delete, reset, change options and save checkpoints. They go on when the server
has started again at its port; some kills come while it starts. After each kill a second server starts on a copy of the
folder. It must have all that was confirmed and nothing that was not attempted. Items of writers are there exactly once,
and samples do not come back whose receipts were confirmed.

`tests/kills/servers_record.json` has the counts of the last whole run.
"""

import argparse
import collections
import contextlib
import json
import logging
import pathlib
import random
import secrets
import shutil
import subprocess
import sys
import tempfile
import time

import kill_records
from killed_servers_clients import Clients, last_of, tables

import reverb

RECORD = pathlib.Path(__file__).parent / "servers_record.json"
MODES = ("process", "power")
# A round begins with an empty folder, so that checks do not become slower and slower.
KILLS_A_ROUND = 25
# The longest time between an answer of a server and its kill.
LONGEST_S = 0.5
# The share of kills that come while a server starts.
EARLY = 0.15


def checkpointer(folder):
    return reverb.checkpointers.DefaultCheckpointer(folder, keep=2)


# The server's side.


def serve(folder, mode, port):
    """Runs a server until it is killed. `port` 0 is any."""
    durability = None if mode == "none" else reverb.Durability(mode, sync_interval=0.2)
    server = reverb.Server(
        tables(), int(port) or None, checkpointer=checkpointer(folder), durability=durability, http_port="off"
    )
    print(server.port, server.unix_path, flush=True)
    server.wait()


# The side that kills it.


class ServerProcess:
    """A process that runs `serve`.

    Args:
      folder: Folder of its checkpoints and its log.
      mode: Mode of its durability.
      port: Port at which it listens; 0 is any.
    """

    def __init__(self, folder, mode, port=0):
        command = [sys.executable, __file__, "serve", str(folder), mode, str(port)]
        self._process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)

    def places(self):
        """Waits until it serves. Returns its port and its Unix socket."""
        line = self._process.stdout.readline()
        assert line, f"the server did not start: exit status {self._process.wait()}"
        port, path = line.split()
        return int(port), path

    def kill(self):
        self._process.kill()
        self._process.wait()
        self._process.stdout.close()


class Found:
    """What a folder has, as a server that starts on it sees it.

    Args:
      folder: A folder that no other server uses.

    Attributes:
      items: The `SampleInfo`s of each table by value. A value is there as often as it was inserted.
      infos: The `TableInfo` of each table.
    """

    def __init__(self, folder):
        with reverb.Server(
            tables(), checkpointer=checkpointer(folder), durability="process", http_port="off"
        ) as server:
            client = server.localhost_client()
            self.infos = client.server_info()
            saved = reverb.checkpointers.open(client.checkpoint())
        self.items = {name: self._items_of(saved.table(name)) for name in self.infos}

    def _items_of(self, table):
        items = collections.defaultdict(list)
        for sample in table:
            items[last_of(sample.data[0])].append(sample.info)
        return items


class Round:
    """A server in a folder of its own that is killed again and again, and its clients.

    Args:
      folder: An empty folder.
      mode: Mode of the durability.
      seed: Seed of the moments and of what the clients do.
    """

    def __init__(self, folder, mode, seed):
        self._folder, self._mode = pathlib.Path(folder) / "kept", mode
        self._random = random.Random(seed)
        self._server = ServerProcess(self._folder, mode)
        try:
            self._port, path = self._server.places()
            self.clients = Clients([f"ipv4:127.0.0.1:{self._port}", f"unix:{path}"], self._random.random())
        except BaseException:
            self._server.kill()
            raise

    def kill(self):
        """Kills the server, starts it again, and checks what it has found."""
        self.clients.wait_for_work()
        time.sleep(self._random.uniform(0.0, LONGEST_S))
        while True:
            with self.clients.server_ends():
                self._server.kill()
            confirmed = self.clients.confirmed()
            copy = self._folder.with_name("copy")
            # Segments are made ahead, so they are mostly holes.
            subprocess.run(["cp", "-a", "--sparse=always", self._folder, copy], check=True)
            self._server = ServerProcess(self._folder, self._mode, self._port)
            if self._random.random() >= EARLY:
                break
            time.sleep(self._random.uniform(0.0, LONGEST_S))
            shutil.rmtree(copy)
        self._server.places()
        self.clients.wait_for_readers()
        self.clients.check(confirmed, Found(copy))
        shutil.rmtree(copy)

    def finish(self):
        """Ends the clients, and checks that all is there which they have confirmed. Returns their counts."""
        self.clients.finish()
        with self.clients.server_ends():
            self._server.kill()
        self.clients.check(self.clients.confirmed(), Found(self._folder))
        return self.clients.counts()

    def close(self):
        self.clients.end()
        self._server.kill()


def run(mode, kills, seed=None):
    """Kills servers of a mode so often. Returns the counts of what the clients did. Fails if something is wrong.

    What threads do when does not follow from the seed, which is printed, but much of it does.
    """
    seed = seed or secrets.token_hex(4)
    counts = collections.Counter()
    for number in range(-(-kills // KILLS_A_ROUND)):
        folder = tempfile.TemporaryDirectory()
        with folder, contextlib.closing(Round(folder.name, mode, f"{seed} {number}")) as killing:
            for _ in range(min(KILLS_A_ROUND, kills - counts["kills"])):
                killing.kill()
                counts["kills"] += 1
            counts.update(killing.finish())
        print(f"{mode}, seed {seed}: {counts['kills']} of {kills} kills", flush=True)
    return dict(counts)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--kills", type=int, default=500, help="of all modes together")
    parser.add_argument("--modes", nargs="+", choices=MODES, default=MODES)
    parser.add_argument("--seed", help="that of an earlier run; any by default")
    parser.add_argument("--record", type=pathlib.Path, default=RECORD)
    arguments = parser.parse_args()
    counts = {mode: run(mode, arguments.kills // len(arguments.modes), arguments.seed) for mode in arguments.modes}
    kill_records.write(arguments.record, "killed_servers.py", counts)
    print(json.dumps(counts, indent=1))


if __name__ == "__main__":
    # Warnings say that the size of a table was changed, and those of replays that a tail was cut off.
    logging.getLogger("reverb").setLevel(logging.ERROR)
    if sys.argv[1:2] == ["serve"]:
        serve(*sys.argv[2:])
    else:
        main()
