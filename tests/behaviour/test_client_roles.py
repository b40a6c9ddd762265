"""What clients with a certificate may do, where a server has no tokens."""

import pytest
from behaviour_support import draw_values, eventually, insert_values, make_table
from tls_support import Authority, address_of

import reverb
from reverb import errors

pytestmark = pytest.mark.ports


@pytest.fixture(scope="module")
def authority(tmp_path_factory):
    return Authority(tmp_path_factory.mktemp("certificates"))


@pytest.fixture(scope="module")
def client_of(authority):
    certificate = authority.sign("client")
    return lambda server: reverb.Client(address_of(server), tls=reverb.TLS(authority.ca, *certificate))


@pytest.fixture
def start_for(start, authority):
    certificate = authority.sign("server")
    return lambda role: start(make_table(), tls=reverb.ServerTLS(*certificate, authority.ca, role))[0]


def test_their_role_decides_and_the_socket_of_the_own_user_may_do_everything(start_for, client_of):
    server = start_for("view")
    viewer, here = client_of(server), reverb.Client(f"unix:{server.unix_path}")
    assert list(viewer.server_info()) == ["table"]
    with pytest.raises(errors.PermissionDeniedError, match="clients with a certificate have role view; .* needs use"):
        insert_values(viewer, [1])
    insert_values(here, [1])
    for call in (viewer.reset, lambda table: viewer.sample_batch(table, 1)):
        with pytest.raises(PermissionError):
            call("table")
    here.reset("table")


def test_they_may_use_a_server_by_default(start, authority, client_of):
    server, _ = start(make_table(), tls=reverb.ServerTLS(*authority.sign("server"), authority.ca))
    client = client_of(server)
    insert_values(client, [1])
    assert draw_values(client) == [1]
    with pytest.raises(errors.PermissionDeniedError, match="role use; Reset needs admin"):
        client.reset("table")


def test_what_they_do_is_audited(start_for, client_of, audited):
    client = client_of(start_for("admin"))
    insert_values(client, [1, 2])
    client.get("table", [7, 8])
    client.delete("table", [9])
    client.configure_table("table", max_size=10)
    client.reset("table")
    eventually(lambda: audited("reset"))
    events = {line["event"]: line for line in audited()}
    assert list(events) == ["connect", "get", "delete", "configure", "reset"]
    assert (events["get"]["table"], events["get"]["count"]) == ("table", 2)
    assert events["delete"]["count"] == 1
    assert all((line["proof"], line["role"]) == ("certificate", "admin") for line in events.values())
