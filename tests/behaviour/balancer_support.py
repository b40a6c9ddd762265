"""Starts HAProxy and nginx, with the recipes of docs/scale.md or with others."""

import pathlib
import re
import shutil
import socket
import subprocess
import threading

import numpy as np
from behaviour_support import eventually, make_table

import reverb

SCALE = pathlib.Path(__file__).parents[2] / "docs" / "scale.md"
# Recipes by heading and language.
RECIPES = {
    "tcp": ("HAProxy, `mode tcp`", "haproxy"),
    "sticky": ("HAProxy, sticky HTTP/2", "haproxy"),
    "nginx": ("nginx", "nginx"),
}
# Paths that a process of an ordinary user may write.
_NGINX_HEAD = "daemon off; pid {0}/pid; error_log {0}/error.log; worker_processes 2;\n"
_NGINX_PATHS = "access_log off; " + " ".join(
    f"{kind}_temp_path {{0}}/{kind};" for kind in ("client_body", "proxy", "fastcgi", "uwsgi", "scgi")
)


def recipe(name):
    """The text of a recipe of docs/scale.md."""
    heading, language = RECIPES[name]
    section = SCALE.read_text().split(f"\n## {heading}\n")[1].split("\n## ")[0]
    (text,) = re.findall(rf"^```{language}\n(.*?)^```$", section, re.MULTILINE | re.DOTALL)
    return text


def with_limits(text, seconds):
    """The recipe with short time limits."""
    text = re.sub(r"(timeout (?:client|server|tunnel)) \w+", rf"\g<1> {seconds}s", text)
    return re.sub(r"((?:client_body_timeout|grpc_read_timeout|grpc_send_timeout) )\w+", rf"\g<1>{seconds}s", text)


class Balancer:
    """A running HAProxy or nginx in front of servers.

    Args:
      text: Configuration, with the port 8000 and the servers of the recipes.
      ports: Ports of the three servers.
      folder: Empty folder for its files.
      open_files: Limit of open files; None leaves that of the tests.
    """

    def __init__(self, text, ports, folder, open_files=None):
        self.folder = folder
        self.port = _free_port()
        for number, port in enumerate(ports, 1):
            text = text.replace(f"10.0.0.{number}:8000", f"127.0.0.1:{port}")
        text = text.replace("bind :8000", f"bind 127.0.0.1:{self.port}")
        text = text.replace("listen 8000", f"listen 127.0.0.1:{self.port}")
        config = folder / "config"
        if "http {" in text:
            text = _NGINX_HEAD.format(folder) + text.replace("http {", "http { " + _NGINX_PATHS.format(folder), 1)
            command = [_installed("nginx"), "-c", str(config), "-p", str(folder), "-e", str(folder / "early.log")]
        else:
            command = [_installed("haproxy"), "-db", "-f", str(config)]
        config.write_text(text)
        with open(folder / "output", "w") as output:
            if open_files is not None:
                command = ["sh", "-c", f'ulimit -n {open_files} && exec "$0" "$@"', *command]
            self.process = subprocess.Popen(command, stdout=output, stderr=subprocess.STDOUT)
        eventually(self._accepts)

    def client(self):
        """A client that stays on the road through the balancer, though the servers are on this machine."""
        return reverb.Client(f"ipv4:127.0.0.1:{self.port}")

    def stop(self):
        self.process.kill()
        self.process.wait()

    def _accepts(self):
        assert self.process.poll() is None, (self.folder / "output").read_text()
        with socket.socket() as probe:
            return probe.connect_ex(("127.0.0.1", self.port)) == 0


class Servers:
    """Three servers with a table and two queues of two items."""

    def __init__(self, heartbeat):
        self.heartbeat = heartbeat
        self.all = [self.start(None) for _ in range(3)]

    def start(self, port):
        queues = [reverb.Table.queue(name, 2) for name in ("queue", "empty")]
        tables = [make_table(sampler="uniform", max_size=100_000), *queues]
        return reverb.Server(tables, port, heartbeat_interval=self.heartbeat)

    @property
    def ports(self):
        return [server.port for server in self.all]

    @property
    def clients(self):
        """A client for each server, without a balancer."""
        return [server.localhost_client() for server in self.all]

    def sizes(self, table="table"):
        return [client.server_info()[table].current_size for client in self.clients]

    def num_waiting(self):
        """The number of calls and items of writers that wait at the tables of all servers."""
        tables = [table for client in self.clients for table in client.server_info().values()]
        return sum(table.waiting_inserts + table.waiting_samples for table in tables)

    def stop(self):
        for server in self.all:
            server.stop()


def write_items(client, count=1, table="table", **options):
    """Writes items by a writer, and waits until they are in their table."""
    with client.trajectory_writer(1, **options) as writer:
        for number in range(count):
            writer.append(np.int64(number))
            writer.create_item(table, 1.0, writer.history[-1:])
        writer.flush(timeout=30)


def in_threads(calls):
    """Begins calls in threads. Returns a function that waits for their results, or errors."""
    results = [None] * len(calls)

    def make(number, call):
        try:
            results[number] = call()
        except Exception as error:
            results[number] = error

    threads = [threading.Thread(target=make, args=numbered) for numbered in enumerate(calls)]
    for thread in threads:
        thread.start()

    def wait():
        for thread in threads:
            thread.join()
        return results

    return wait


def _installed(program):
    path = shutil.which(program) or shutil.which(program, path="/usr/sbin:/usr/local/sbin")
    assert path, f"{program} is needed; on Debian: apt-get install haproxy nginx-light"
    return path


def _free_port():
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        return free.getsockname()[1]
