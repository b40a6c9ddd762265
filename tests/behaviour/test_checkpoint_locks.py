"""The lock of a folder of checkpoints: the server that holds it keeps it, and no other process does."""

import os
import shutil
import signal

import pytest
from behaviour_support import PATIENCE_S, eventually, make_table, program, run_program

import reverb
from reverb import checkpointers

# A server that keeps its checkpoints in the folder named by the first argument.
SERVER = """
    import os, signal, subprocess, sys
    import reverb
    def serve():
        checkpointer = reverb.checkpointers.DefaultCheckpointer(sys.argv[1])
        return reverb.Server([reverb.Table.queue("table", 100)], checkpointer=checkpointer)
    server = serve()
"""


def serve(root):
    return reverb.Server([make_table()], checkpointer=checkpointers.DefaultCheckpointer(str(root)))


def can_serve(root):
    try:
        serve(root).stop()
    except ValueError:
        return False
    return True


def test_copying_the_folder_does_not_unlock_it(tmp_path):
    """A POSIX record lock ends when its process closes any descriptor of the file, as every copy does."""
    root = tmp_path / "root"
    server = serve(root)
    server.localhost_client().checkpoint()
    shutil.copytree(root, tmp_path / "backup")
    with program(SERVER, root) as other:
        _, complaints = other.process.communicate(timeout=PATIENCE_S)
    assert f"the server of process {os.getpid()} keeps its checkpoints in" in complaints
    server.stop()
    run_program(SERVER, root)


@pytest.mark.parametrize(
    "begin",
    [
        "os.fork() or signal.pause()",
        "subprocess.Popen(['sleep', '1000'], close_fds=False).pid",
        "subprocess.Popen(['sleep', '1000'], close_fds=False, preexec_fn=lambda: None).pid",
    ],
    ids=["fork", "spawn", "fork-and-exec"],
)
def test_child_does_not_keep_the_folder_locked(tmp_path, begin):
    """The child lives on after the process whose server has locked the folder was killed."""
    with program(SERVER + f"    print({begin}, flush=True)\n    signal.pause()\n", tmp_path) as parent:
        child = int(parent.line())
        try:
            with pytest.raises(ValueError, match=f"process {parent.process.pid} keeps"):
                serve(tmp_path)
            parent.process.kill()
            parent.process.wait()
            os.kill(child, 0)
            # The child closes its copy of the lock when it first runs, which may be after the end of its parent.
            eventually(lambda: can_serve(tmp_path))
        finally:
            os.kill(child, signal.SIGKILL)


def test_forked_child_can_lock_the_folder_once_the_parent_has_unlocked_it(tmp_path):
    run_program(
        SERVER
        + """
    refused, tell_refused = os.pipe()
    stopped, tell_stopped = os.pipe()
    child = os.fork()
    if not child:
        # Ends the child's copy only.
        server.stop()
        try:
            serve()
        except ValueError as error:
            assert f"process {os.getppid()} keeps" in str(error), error
            os.write(tell_refused, b"x")
        os.read(stopped, 1)
        serve().stop()
        os._exit(0)
    os.close(tell_refused)
    assert os.read(refused, 1) == b"x"
    server.stop()
    os.write(tell_stopped, b"x")
    assert os.waitpid(child, 0)[1] == 0
    """,
        tmp_path,
    )
