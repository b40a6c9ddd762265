import python_imports
from house_support import package, python_arrows

A_MODULE = "class Thing: ...\ndef make(): ...\n"


def test_imports_are_arrows_wherever_they_stand(tmp_path):
    places = {
        "module": "import reverb.data.a",
        "renamed": "import reverb.data.a as a",
        "name": "from reverb.data.a import Thing",
        "from_package": "from reverb.data import a",
        "everything": "from reverb.data.a import *",
        "relative": "from .data.a import Thing as Other",
        "relative_module": "from .data import a",
        "in_function": "def f():\n    from reverb.data.a import make\n",
        "for_types": "from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    from reverb.data.a import Thing\n",
        "by_name": "import importlib\na = importlib.import_module('reverb.data.a')\n",
        "by_relative_name": "import importlib\na = importlib.import_module('.data.a', __package__)\n",
        "if_loaded": "import sys\na = sys.modules.get('reverb.data.a')\nb = sys.modules['reverb.data.a']\n",
        "along_package": "import reverb\ndef f(): return reverb.data.a.Thing\n",
    }
    files = {"data/__init__.py": "", "data/a.py": A_MODULE} | {f"{name}.py": text for name, text in places.items()}
    assert python_arrows(package(tmp_path, files)) == {(f"{name}.py", "data/a.py") for name in places}


def test_names_from_a_package_lead_to_the_module_that_defines_them(tmp_path):
    files = {
        "data/__init__.py": "from reverb.data.a import Thing as Renamed\nfrom reverb.data.b import *\nOWN = 1\n",
        "data/a.py": A_MODULE,
        "data/b.py": "def starred(): ...\n",
        "c.py": "from reverb.data import Renamed",
        "d.py": "from reverb.data import OWN",
        "e.py": "from reverb.data import starred",
    }
    arrows = python_arrows(package(tmp_path, files))
    assert ("c.py", "data/a.py") in arrows
    assert ("e.py", "data/b.py") in arrows
    assert {source for source, target in arrows if target == "data/__init__.py"} == {"d.py"}


def test_names_that_a_module_hands_on_lead_to_both(tmp_path):
    files = {"a.py": A_MODULE, "b.py": "from reverb.a import Thing", "c.py": "from reverb.b import Thing"}
    assert {("c.py", "b.py"), ("c.py", "a.py")} <= python_arrows(package(tmp_path, files))


def test_face_of_the_package_leads_on_and_is_no_source(tmp_path):
    face = "from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    from reverb.a import Thing as Thing\n"
    files = {
        "__init__.py": face,
        "a.py": A_MODULE,
        "b.py": "from reverb import Thing",
        "c.py": "import reverb\nreverb.Thing()",
    }
    assert python_arrows(package(tmp_path, files)) == {("b.py", "a.py"), ("c.py", "a.py")}


def test_other_packages_are_sources(tmp_path):
    files = {"data/__init__.py": "from reverb.data.a import Thing", "data/a.py": "from reverb.data import OWN"}
    assert python_imports.graph_of(package(tmp_path, files)).cycles() != []


def test_libraries_are_outside(tmp_path):
    top = package(
        tmp_path,
        {"a.py": "import numpy as np\nfrom os import path\n", "_rust.pyi": "", "b.py": "from reverb import _rust"},
    )
    outside = python_imports.graph_of(top).outside
    assert outside["python/reverb/a.py"] == {"numpy", "os.path"}
    assert outside["python/reverb/b.py"] == {"reverb._rust"}


def test_cycle_is_found_through_an_import_in_a_function_and_a_re_export(tmp_path):
    files = {
        "data/__init__.py": "from reverb.data.a import Thing\n",
        "data/a.py": "class Thing:\n    def f(self):\n        from reverb.b import g\n",
        "b.py": "from reverb.data import Thing\ndef g(): ...\n",
    }
    (text,) = python_imports.graph_of(package(tmp_path, files)).cycles()
    assert "python/reverb/data/a.py -> python/reverb/b.py: g" in text
    assert "python/reverb/b.py -> python/reverb/data/a.py: Thing" in text
