"""Addresses that are a name: all addresses of the name are servers."""

import contextlib
import shutil
import subprocess
import sys

import pytest
from address_list_support import Servers, insert
from behaviour_support import run_program

import reverb

# A library that makes `replay.test` a name with two addresses for a process that is started with it.
RESOLVER = r"""
#define _GNU_SOURCE
#include <dlfcn.h>
#include <netdb.h>
#include <string.h>

typedef int (*look_up)(const char *, const char *, const struct addrinfo *, struct addrinfo **);

int getaddrinfo(const char *name, const char *service, const struct addrinfo *hints, struct addrinfo **found) {
    look_up next = (look_up)dlsym(RTLD_NEXT, "getaddrinfo");
    if (name == NULL || strcmp(name, "replay.test") != 0) return next(name, service, hints, found);
    struct addrinfo *others;
    int error = next(FIRST, service, hints, found);
    if (error == 0) error = next(SECOND, service, hints, &others);
    if (error != 0) return error;
    struct addrinfo *last = *found;
    while (last->ai_next != NULL) last = last->ai_next;
    last->ai_next = others;
    return 0;
}

/* The lists are not freed, since they are joined. */
void freeaddrinfo(struct addrinfo *list) { (void)list; }
"""

BY_NAME = """
import sys
import numpy as np
import reverb

client = reverb.Client(sys.argv[1])
for number in range(6):
    client.insert(np.float32(number), {"table": 1.0})
print(client.road)
print(client.server_info()["table"].current_size)
print(client.update_priorities("table", client.sample_batch("table", 2).info.key, 2.0))
"""


@pytest.fixture
def servers():
    with contextlib.ExitStack() as stack:
        yield Servers(stack)


@pytest.fixture
def resolve(tmp_path, monkeypatch):
    """Gives the name `replay.test` two addresses in the programs that a test starts after the call."""

    def resolve(first, second):
        compiler = shutil.which("cc")
        if compiler is None or sys.platform != "linux":
            pytest.skip("a C compiler and Linux are needed to name two addresses")
        (tmp_path / "resolver.c").write_text(RESOLVER)
        names = [f'-DFIRST="{first}"', f'-DSECOND="{second}"']
        library = tmp_path / "resolver.so"
        subprocess.run(
            [compiler, "-shared", "-fPIC", *names, "-o", library, tmp_path / "resolver.c", "-ldl"], check=True
        )
        monkeypatch.setenv("LD_PRELOAD", str(library))

    return resolve


@pytest.mark.parametrize("form", ["dns:///replay.test:{}", "dns:replay.test:{}"])
def test_all_addresses_of_a_name_are_servers(servers, resolve, form):
    port = servers.start()
    servers.start(port=port, host="127.0.0.2")
    resolve("127.0.0.1", "127.0.0.2")
    out, _ = run_program(BY_NAME, form.format(port))
    assert out.split("\n")[:3] == ["tcp (2 servers)", "6", "2"]
    sizes = [
        reverb.Client(f"ipv4:{host}:{port}").server_info()["table"].current_size for host in ("127.0.0.1", "127.0.0.2")
    ]
    assert sizes == [3, 3]


def test_the_addresses_of_a_name_that_no_server_uses_are_left_out(servers, resolve):
    # Many hosts have an IPv6 address on which nothing listens.
    port = servers.start(host="127.0.0.2")
    resolve("127.0.0.2", "::1")
    out, errors = run_program(BY_NAME, f"dns:///replay.test:{port}")
    assert out.split("\n")[:3] == ["tcp", "6", "2"]
    assert "cannot be reached" not in errors


def test_a_name_with_one_address_is_one_server(servers):
    port = servers.start()
    client = reverb.Client(f"dns:///localhost:{port}")
    insert(client, 3)
    assert client.road == "tcp"
    assert client.server_info()["table"].current_size == 3
    client.reset("table")
    assert servers.sizes() == [0]
