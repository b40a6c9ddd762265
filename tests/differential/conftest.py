"""The processes of the matrix, for all tests of a session."""

import pytest
from matrix_processes import Processes


@pytest.fixture(scope="session")
def processes(tmp_path_factory):
    """Clients and servers of both sides, and the tables that the servers have from the start."""
    processes = Processes(tmp_path_factory.mktemp("matrix"))
    yield processes
    processes.close()
