"""`reverb.ray` where Ray is not installed."""

import subprocess
import sys

WITHOUT_RAY = """
import importlib.abc, importlib.util, sys

class Refuse(importlib.abc.MetaPathFinder):
    def find_spec(self, name, path, target=None):
        if name.partition(".")[0] == "ray":
            raise ModuleNotFoundError(f"No module named {name!r}", name="ray")

find_spec = importlib.util.find_spec
importlib.util.find_spec = lambda name, *rest: None if name == "ray" else find_spec(name, *rest)
sys.meta_path.insert(0, Refuse())
import reverb.ray

for name in ("start", "connect", "stop"):
    try:
        getattr(reverb.ray, name)
    except ImportError as error:
        print(error)
print(hasattr(reverb.ray, "other"))
"""


def test_import_works_and_use_names_the_extra():
    done = subprocess.run([sys.executable, "-c", WITHOUT_RAY], check=True, capture_output=True, text=True)
    needs = [f"reverb.ray.{name} needs Ray: pip install 'reverb-replay[ray]'" for name in ("start", "connect", "stop")]
    assert done.stdout.splitlines() == [*needs, "False"]
