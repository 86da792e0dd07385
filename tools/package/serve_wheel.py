"""Lays out the wheel `quire-serve` in a folder: the command and its libraries from the tarball's tree, in the package folder quire_serve.

Usage: python3 -m package.serve_wheel TREE FOLDER --version VERSION --tag PLATFORM. `wheel pack FOLDER` then makes the wheel. The platform is
linux_ARCH at first, and the platform that auditwheel finds when the wheel is packed again. Any Python can install the wheel, because no file
in it uses Python's C API.
"""
import argparse
import pathlib
import shutil
import sys

import project_url

REPO = pathlib.Path(__file__).resolve().parents[2]
PACKAGE = REPO / "python/quire_serve"

METADATA = """\
Metadata-Version: 2.1
Name: quire-serve
Version: {version}
Summary: The command quire: a serving engine for large language models on the CPU
License: Apache-2.0
Project-URL: Homepage, {url}
Classifier: Environment :: Console
Classifier: License :: OSI Approved :: Apache Software License
Classifier: Operating System :: POSIX :: Linux
Classifier: Programming Language :: C++
Classifier: Programming Language :: Python :: 3
Requires-Python: >=3.8
Description-Content-Type: text/markdown

{readme}"""

WHEEL = """\
Wheel-Version: 1.0
Generator: quire {version}
Root-Is-Purelib: false
Tag: py3-none-{platform}
"""


def lay_out(tree, folder, version, platform):
    """Writes the wheel's files into `folder`, which must not exist. `tree` has the layout of the tarball: bin/quire, lib/quire, share."""
    package, info = folder / "quire_serve", folder / f"quire_serve-{version}.dist-info"
    for name in ("bin/quire", "lib/quire", "share/doc/quire/copyright"):
        if not (tree / name).exists():
            raise FileNotFoundError(f"{tree}: {name} is missing. Give the tree of the tarball")
    package.mkdir(parents=True)
    for module in sorted(PACKAGE.glob("*.py")):
        shutil.copy(module, package)
    (package / "bin").mkdir()
    shutil.copy(tree / "bin/quire", package / "bin/quire")
    # The program finds its libraries at $ORIGIN/../lib/quire, in the tarball and here.
    shutil.copytree(tree / "lib/quire", package / "lib/quire")
    (info / "licenses").mkdir(parents=True)
    shutil.copy(tree / "share/doc/quire/copyright", info / "licenses/copyright")
    readme = (PACKAGE / "README.md").read_text(encoding="utf-8")
    (info / "METADATA").write_text(METADATA.format(version=version, url=project_url.read(), readme=readme), encoding="utf-8")
    (info / "WHEEL").write_text(WHEEL.format(version=version, platform=platform), encoding="utf-8")
    (info / "entry_points.txt").write_text("[console_scripts]\nquire = quire_serve.__main__:main\n", encoding="utf-8")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("tree", type=pathlib.Path)
    parser.add_argument("folder", type=pathlib.Path)
    parser.add_argument("--version", required=True)
    parser.add_argument("--tag", required=True, metavar="PLATFORM")
    asked = parser.parse_args()
    try:
        lay_out(asked.tree, asked.folder, asked.version, asked.tag)
    except OSError as error:
        sys.exit(f"serve_wheel: {error}")


if __name__ == "__main__":
    main()
