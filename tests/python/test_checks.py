"""Tests that the checks of imports and includes find cycles, and that this tree has none."""

import pathlib
import subprocess
import sys

import pytest

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT / "tools")]
import check_imports  # noqa: E402
import check_includes  # noqa: E402


def circles_of(folder, files):
    """Writes the files (a colon in a name stands for a slash) and returns their cycles."""
    for name, text in files.items():
        path = folder.joinpath(*name.split(":"))
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
    return [[path.name for path in circle] for circle in check_imports.circles(check_imports.read_graph(folder))]


def test_this_tree_has_no_cycle():
    assert check_imports.circles(check_imports.read_graph(ROOT)) == []
    assert check_imports.circles(check_includes.read_rooms(ROOT)) == []
    assert check_imports.circles(check_includes.public_folders(ROOT)) == []


@pytest.mark.parametrize(
    ("files", "expected"),
    [
        ({"bench:a.py": "import b\n", "bench:b.py": "import sys\n"}, []),
        ({"bench:a.py": "import b\n", "bench:b.py": "import a\n"}, [["a.py", "b.py", "a.py"]]),
        ({"bench:a.py": "import b\n", "tools:b.py": "import a\n"}, []),  # scripts of the other folder are not visible
        (  # within a function, through a package, and by a relative import
            {
                "tools:box:__init__.py": "",
                "tools:box:a.py": "from . import b\n",
                "tools:box:b.py": "from .c import d\n",
                "tools:box:c.py": "def late():\n    from .a import x\n",
            },
            [["a.py", "b.py", "c.py", "a.py"]],
        ),
        ({"python:pack:__init__.py": "from .one import x\n", "python:pack:one.py": "import pack\n"}, [["__init__.py", "one.py", "__init__.py"]]),
    ],
)
def test_finds_cycles_of_imports(tmp_path, files, expected):
    assert circles_of(tmp_path, files) == expected


def test_finds_cycles_of_rooms(tmp_path):
    (tmp_path / "cmake").mkdir()
    (tmp_path / "cmake/Rooms.cmake").write_text("quire_room(a a DEPS b)\nquire_room(b b PART DEPS a)\nquire_room(c c LINKS a)\n")
    assert check_imports.circles(check_includes.read_rooms(tmp_path)) == [["a", "b", "a"]]


def test_finds_cycles_of_public_headers(tmp_path):
    for name, included in {"quire/top.h": "quire/low/one.h", "quire/low/one.h": "quire/low/two.h", "quire/low/two.h": "quire/top.h"}.items():
        path = tmp_path / "include" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(f'#include <vector>\n#include "{included}"\n')
    assert check_imports.circles(check_includes.public_folders(tmp_path)) == [["quire", "quire/low", "quire"]]


def test_finds_classes_that_two_headers_define(tmp_path):
    texts = {
        "a/one.h": "namespace quire {\nclass Router {\n};\nclass Other;\nstruct Same::State {\n};\n}\n",
        "b/two.h": "namespace quire {\nclass Router final : public Base {\n};\nclass Other {\n};\nstruct Same::State {\n};\n}\n",
        "c/three.h": "namespace quire::test {\nstruct Router {\n};\n}\n",
    }
    for name, text in texts.items():
        path = tmp_path / "src" / name
        path.parent.mkdir(parents=True)
        path.write_text(text)
    assert list(check_includes.repeated_classes(tmp_path)) == ["{0}/b/two.h: {0}/a/one.h also defines quire::Router".format("src")]
    assert list(check_includes.repeated_classes(ROOT)) == []


def test_check_fails_when_there_is_a_cycle(tmp_path):
    assert circles_of(tmp_path, {"bench:a.py": "import b\n", "bench:b.py": "import a\n"})
    done = subprocess.run([sys.executable, str(ROOT / "tools/check_imports.py"), str(tmp_path)], capture_output=True, text=True)
    assert done.returncode == 1 and done.stdout.count("a.py") == 2 and "b.py" in done.stdout
