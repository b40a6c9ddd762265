"""The order that the code keeps, as data: which floor stands on which, and what no floor may name."""

CODE_FOLDERS = ("benchmarks", "crates", "examples", "python", "tests")
# Lines of code: comments, docstrings and blanks are free.
MAX_LINES = 500
MAX_FUNCTION_LINES = 60
# Where functions may be longer: programs of others, kept as they were written.
KEPT = ("tests/programs/examples",)

# Crates from the lowest floor up. Those of one floor do not use each other.
CRATES = (
    ("reverb-core",),
    ("reverb-formats",),
    ("reverb-service", "reverb-secure"),
    ("reverb-observe",),
    ("reverb-store", "reverb-net"),
    ("reverb-python",),
)

_NETWORK = ("h2", "hyper", "hyper_util", "socket2", "tonic", "tower")
_PYTHON = ("numpy", "pyo3")

# What a crate names neither in its manifest nor in its code.
NOT_IN_CRATE = {
    "reverb-core": ("prost", "std::fs", "std::net", "tokio", *_NETWORK, *_PYTHON),
    "reverb-formats": ("std::fs", "std::net", "tokio", *_NETWORK, *_PYTHON),
    "reverb-service": ("std::fs", *_NETWORK, *_PYTHON),
    "reverb-secure": (*_NETWORK, *_PYTHON),
    "reverb-store": ("reverb_observe", "reverb_secure", "rustls", "std::net", *_NETWORK, *_PYTHON),
    "reverb-observe": ("h2", "tonic", *_PYTHON),
    "reverb-net": _PYTHON,
}

# Files and folders in `src/` of a crate, from the lowest floor up. `lib.rs` hands on names of all.
PARTS = {
    "reverb-observe": (("bind", "calls", "documents/"), ("metrics/", "verdict/"), ("http/",), ("lib",)),
    "reverb-net": (
        ("descriptors", "transport/"),
        ("grpc/", "writing/"),
        ("dm_reverb/", "replay_v1/"),
        ("client/", "server/"),
        ("lib",),
    ),
}

# Files that lie in `src/` of a crate outside of folders, at most.
MAX_LOOSE_FILES = {"reverb-observe": 8, "reverb-net": 8}

# Parts of a crate that know nothing of each other, in either direction.
APART_IN_CRATES = (
    ("crates/reverb-net/src/client", "crates/reverb-net/src/server"),
    ("crates/reverb-net/src/replay_v1", "crates/reverb-net/src/dm_reverb"),
    ("crates/reverb-net/src/replay_v1/server", "crates/reverb-net/src/replay_v1/client"),
)

# Types whose cases one file alone names, so that a further case concerns no other.
KINDS = {
    "Road": "crates/reverb-net/src/client/road.rs",
    "Roads": "crates/reverb-net/src/client/roads.rs",
}

# Faces of other libraries: what their programs name, made of all that lies below. Only commands may use one.
FACES = (
    "frameworks/torchrl",
    "pattern_dataset",
    "pybind",
    "server_executable/",
    "tf_client",
    "timestep_dataset",
    "trajectory_dataset",
)

# Modules of `python/reverb` from the lowest floor up. The longest entry that fits a file counts.
MODULES = (
    ("_binding", "_shutdown", "errors", "logging/", "replay_sample"),
    ("_protos", "_receipts", "cc/", "data/", "tensor_spec"),
    ("_announcement", "_settings", "frameworks/", "item_selectors", "prioritized", "rate_limiters", "reverb_types"),
    ("_conditions", "writing/"),
    ("batched_writer", "selectors", "structured_writer", "trajectory_writer", "writer"),
    ("checkpoint_reader", "client"),
    ("adders/", "aio/", "cluster/", "platform/"),
    ("checkpointers", "server", "structured"),
    ("buffers/", "exchange/", "loaders/", "ray/", "tf/"),
    FACES,
    ("cli/",),
    # Hands on names of all.
    ("__init__",),
)

# Parts of the package that know nothing of the others of their group.
APART_IN_PACKAGE = (("buffers/", "exchange/", "loaders/", "ray/", "tf/"), FACES)

# The only module that reads the environment, and the few places beside it that must, by what they read.
ENVIRONMENT = "python/reverb/_settings.py"
READS_ENVIRONMENT = {
    # Terminals set it. It is not a setting of ours.
    "python/reverb/cli/top.py": "COLUMNS",
    # systemd sets it for a service that tells it when it is ready.
    "python/reverb/cli/notifying.py": "NOTIFY_SOCKET",
    # Where the system has each user's sockets.
    "crates/reverb-net/src/transport/unix_path.rs": "XDG_RUNTIME_DIR",
}

# The only module that imports the extension.
BINDING = "_binding"
EXTENSION = "reverb._rust"
