"""Certificates, keys and authorities that are replaced while a server with TLS runs."""

import os
import pathlib
import shutil
import ssl

import pytest
from behaviour_support import Background, eventually, insert_values, make_table
from tls_support import Authority, address_of, shown_by

import reverb
from reverb import errors

pytestmark = pytest.mark.ports


@pytest.fixture
def folder(tmp_path):
    return pathlib.Path(tmp_path)


@pytest.fixture
def authority(folder):
    return Authority(folder)


def put(paths, names):
    """Puts files in the place of others, as one who writes them beside and renames them."""
    for source, target in zip(paths, names, strict=True):
        shutil.copy(source, f"{target}.new")
        os.replace(f"{target}.new", target)


def der_of(path):
    return ssl.PEM_cert_to_DER_cert(pathlib.Path(path).read_text())


@pytest.fixture
def files(folder, authority):
    """The files of a server, which tests replace."""
    files = reverb.ServerTLS(folder / "used.pem", folder / "used.key", folder / "clients.pem")
    put([*authority.sign("first"), authority.ca], [files.cert, files.key, files.client_ca])
    return files


@pytest.fixture
def server(files):
    server = reverb.Server([make_table(), reverb.Table.queue("queue", 10)], tls=files)
    yield server
    server.stop()


@pytest.fixture
def client(server, authority):
    return reverb.Client(address_of(server), tls=reverb.TLS(authority.ca, *authority.sign("client")))


def is_usable(client, server, waiting):
    """Whether the streams of a client work, the one with a waiting call too."""
    insert_values(client, [1])
    reverb.Client(f"localhost:{server.port}").insert([7], {"queue": 1.0})
    return waiting.result().data[0].ravel().tolist() == [7]


def test_new_handshakes_see_a_new_certificate_and_open_streams_stay(server, client, files, authority):
    waiting = Background(client.sample_batch, "queue", 1)
    insert_values(client, [1])
    before = shown_by(server.port), shown_by(server.http_port, "http/1.1")
    assert before == (der_of(files.cert),) * 2
    put(authority.sign("second"), [files.cert, files.key])
    eventually(lambda: shown_by(server.port) == der_of(files.cert) != before[0])
    assert shown_by(server.http_port, "http/1.1") == der_of(files.cert)
    assert is_usable(client, server, waiting)


def test_files_that_do_not_fit_are_refused_with_one_warning(server, client, files, authority, folder, caplog):
    first = der_of(files.cert)
    second = authority.sign("second")
    put(second[:1], [files.cert])
    eventually(lambda: any("the ones before stay in use" in record.message for record in caplog.records))
    assert shown_by(server.port) == first
    insert_values(client, [1])
    put(second[1:], [files.key])
    eventually(lambda: shown_by(server.port) == der_of(second[0]))
    warnings = [record for record in caplog.records if "the ones before stay in use" in record.message]
    assert len(warnings) == 1
    assert files.cert in warnings[0].message


def test_a_link_that_kubernetes_swaps_is_followed(authority, folder):
    for name in ("one", "two"):
        (folder / name).mkdir()
        put(authority.sign(name), [folder / name / "tls.pem", folder / name / "tls.key"])
    os.symlink("one", folder / "data")
    server = reverb.Server(
        [make_table()], tls=reverb.ServerTLS(folder / "data" / "tls.pem", folder / "data" / "tls.key")
    )
    try:
        assert shown_by(server.port) == der_of(folder / "one" / "tls.pem")
        os.symlink("two", folder / "data.new")
        os.replace(folder / "data.new", folder / "data")
        eventually(lambda: shown_by(server.port) == der_of(folder / "two" / "tls.pem"))
    finally:
        server.stop()


def test_clients_whose_authority_is_gone_end_and_others_stay(server, client, files, authority, folder):
    later = Authority(folder, "later")
    of_later = reverb.TLS(authority.ca, *later.sign("of-later"))
    both = folder / "both.pem"
    both.write_text(pathlib.Path(authority.ca).read_text() + pathlib.Path(later.ca).read_text())
    put([both], [files.client_ca])
    newer = reverb.Client(address_of(server), tls=of_later)
    eventually(lambda: can_call(newer))
    waiting, of_newer = Background(client.sample_batch, "queue", 1), Background(newer.sample_batch, "queue", 1)
    insert_values(client, [1])
    insert_values(newer, [1])
    put([later.ca], [files.client_ca])
    with pytest.raises((errors.UnauthenticatedError, errors.UnavailableError)):
        waiting.result()
    # It may have others, whose end it has not seen yet.
    eventually(lambda: not can_call(client))
    with pytest.raises(errors.UnauthenticatedError, match="does not accept the certificate"):
        client.server_info()
    assert is_usable(newer, server, of_newer)


def can_call(client):
    try:
        return bool(client.server_info())
    except (errors.UnauthenticatedError, errors.UnavailableError):
        return False


def test_an_authority_that_is_gone_or_broken_keeps_the_checks(server, client, files, authority, caplog):
    without = reverb.Client(address_of(server), tls=reverb.TLS(authority.ca))
    for break_it in (lambda path: os.remove(path), lambda path: pathlib.Path(path).write_text("")):
        caplog.clear()
        break_it(files.client_ca)
        eventually(lambda: any("the ones before stay in use" in record.message for record in caplog.records))
        with pytest.raises(errors.UnauthenticatedError):
            without.server_info()
        assert client.server_info()
