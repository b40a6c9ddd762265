"""What a serving process of the matrix does. See matrix_peer.py."""

import collections
import inspect

import numpy as np
from checkpoint_driver import Job
from driver import Run

Pair = collections.namedtuple("Pair", "second first")


class Tables(Run):
    """Makes tables from specs, as the other drivers do.

    Args:
      reverb: Module under test.
    """

    def __init__(self, reverb):
        self.reverb = reverb

    def make_signature(self, columns):
        """Makes a signature from columns, as the other drivers do, or one with nests, bounds and unknown shapes."""
        if columns != "nests":
            return super().make_signature(columns)
        try:
            from reverb.tensor_spec import BoundedTensorSpec, TensorSpec
        except ImportError:
            from tensorflow import TensorSpec
            from tensorflow.python.framework.tensor_spec import BoundedTensorSpec
        bounded = BoundedTensorSpec((2,), np.float32, minimum=-1.5, maximum=[1.0, 2.0], name="bounded")
        unknown = TensorSpec(None, np.dtype(np.int64), name="unknown")
        return {"z": (bounded, [TensorSpec((None, 3), np.dtype(np.uint8))]), "a": Pair(second=unknown, first=unknown)}


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
        # Ours tells clients that are elsewhere whether it will be back.
        says = "returns" in inspect.signature(server.stop).parameters
        server.stop(**({"returns": True} if says else {}))


def clear(peer, name, tables):
    """Removes what earlier tests have left in tables, on the server's own side, whatever the clients' state."""
    client = peer.servers[name].localhost_client()
    for table in tables:
        client.reset(table)


def sizes(peer, name):
    """Returns the sizes of all tables, as the server's own side sees them."""
    infos = peer.servers[name].localhost_client().server_info()
    return {table: info.current_size for table, info in infos.items()}


def put(peer, name, table, value):
    """Inserts a number on the server's own side."""
    peer.servers[name].localhost_client().insert(np.int64(value), {table: 1.0})


def save(peer, name):
    """Saves a checkpoint on the server's own side, and returns its path."""
    return peer.servers[name].localhost_client().checkpoint()


def load(peer, job):
    """Loads a checkpoint as checkpoint_driver.py does, and returns all that is known of its tables and items."""
    return Job(peer.reverb, job).run()


TASKS = (serve, stop, clear, sizes, put, save, load)
