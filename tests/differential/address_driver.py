"""Runs one program with a client of two servers. Prints what each server got and gave, in an order that both share."""

import contextlib
import json
import socket

import numpy as np

import reverb


def start(port):
    names = ("inserts", "writers")
    return reverb.Server(
        [
            reverb.Table(
                name=name,
                sampler=reverb.selectors.Uniform(),
                remover=reverb.selectors.Fifo(),
                max_size=1000,
                rate_limiter=reverb.rate_limiters.MinSize(1),
            )
            for name in names
        ],
        port=port,
    )


def free_ports(count):
    probes = [socket.socket() for _ in range(count)]
    for probe in probes:
        probe.bind(("", 0))
    ports = [probe.getsockname()[1] for probe in probes]
    for probe in probes:
        probe.close()
    return ports


def sizes(clients, table):
    return sorted(client.server_info()[table].current_size for client in clients)


def keys_of(samples):
    return {sample[0].info.key for sample in samples}


def connect(address, clients):
    """Returns a client that uses both servers. A client of dm-reverb uses the first while it connects to the second."""
    while True:
        client = reverb.Client(address)
        for _ in range(4):
            client.insert(np.float32(0), {"inserts": 1.0})
        is_spread = all(each.server_info()["inserts"].current_size > 0 for each in clients)
        for each in clients:
            each.reset("inserts")
        if is_spread:
            return client


def notice_loss(client):
    """Makes calls that may fail, until the client has seen that a server is gone."""
    for _ in range(4):
        with contextlib.suppress(RuntimeError):
            client.server_info()


def main():
    ports = free_ports(2)
    servers = [start(port) for port in ports]
    clients = [reverb.Client(f"localhost:{port}") for port in ports]
    client = connect("ipv4:" + ",".join(f"127.0.0.1:{port}" for port in ports), clients)
    answer = {}

    for number in range(10):
        client.insert(np.float32(number), {"inserts": 1.0})
    answer["inserts"] = sizes(clients, "inserts")

    answer["writers"] = []
    for _ in range(4):
        with client.trajectory_writer(num_keep_alive_refs=1) as writer:
            for number in range(3):
                writer.append({"x": np.float32(number)})
                writer.create_item("writers", 1.0, {"x": writer.history["x"][-1:]})
                writer.flush()
        answer["writers"].append(sizes(clients, "writers"))

    by_server = [keys_of(each.sample("inserts", 200)) for each in clients]
    drawn = [keys_of(client.sample("inserts", 10)) for _ in range(8)]
    answer["calls that drew from one server"] = sum(any(keys <= known for known in by_server) for keys in drawn)
    answer["servers drawn from"] = sum(any(keys <= known for keys in drawn) for known in by_server)

    answer["tables"] = sorted(client.server_info())

    servers[0].stop()
    notice_loss(client)
    for number in range(6):
        client.insert(np.float32(number), {"inserts": 1.0})
    answer["with one server"] = clients[1].server_info()["inserts"].current_size
    print(json.dumps(answer))
    servers[1].stop()


main()
