"""What a serving process of the matrix does. See matrix_peer.py."""

from driver import Run


class Tables(Run):
    """Makes tables from specs, as the other drivers do.

    Args:
      reverb: Module under test.
    """

    def __init__(self, reverb):
        self.reverb = reverb


def serve(peer, name, tables, port=None, folder=None, load=None):
    """Starts a server and returns its port.

    Args:
      peer: State of the process.
      name: Name by which other tasks find the server. One that has it is stopped first.
      tables: Specs of tables, as in driver.py.
      port: Port to listen on; None chooses a free one.
      folder: Folder for checkpoints; None lets the package choose.
      load: Folder whose newest checkpoint is loaded if `folder` has none.
    """
    stop(peer, name)
    make = Tables(peer.reverb).make_table
    options = {}
    if folder is not None:
        options["checkpointer"] = peer.reverb.checkpointers.DefaultCheckpointer(folder, fallback_checkpoint_path=load)
    # The reference cannot wait for the server that had the port before; ours says that it is in use.
    server = peer.reverb.Server(tables=[make(spec) for spec in tables], port=port, **options)
    peer.servers[name] = server
    return server.port


def stop(peer, name):
    server = peer.servers.pop(name, None)
    if server is not None:
        server.stop()


def clear(peer, name, tables):
    """Removes what earlier tests have left in tables, on the server's own side, whatever the clients' state."""
    client = peer.servers[name].localhost_client()
    for table in tables:
        client.reset(table)


def sizes(peer, name):
    """Returns the sizes of all tables, as the server's own side sees them."""
    infos = peer.servers[name].localhost_client().server_info()
    return {table: info.current_size for table, info in infos.items()}


TASKS = (serve, stop, clear, sizes)
