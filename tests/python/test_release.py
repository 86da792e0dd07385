"""Tests how packages are published, without a build: the wheel of the command from an invented tree, its tag, the SBOM, the project's address,
the workflows and the image's Containerfile.
"""
import base64
import hashlib
import json
import os
import pathlib
import re
import subprocess
import sys
import zipfile

import pytest
import yaml

REPO = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(REPO / "tools"))
import project_url  # noqa: E402
from package import platform_tag, sbom, serve_wheel  # noqa: E402

WORKFLOWS = sorted((REPO / ".github/workflows").glob("*.yml"))
PROGRAM = '#!/bin/sh\necho "$(dirname "$0") $*"\n'


@pytest.fixture
def tree(tmp_path):
    """A tree with the tarball's layout, whose program prints its folder and its arguments."""
    root = tmp_path / "tree"
    for name, text in {"bin/quire": PROGRAM, "lib/quire/libfirst.so.1": "a library", "share/doc/quire/copyright": "licences",
                       "lib/libquire_c.so.0": "the C API"}.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(text)
    (root / "bin/quire").chmod(0o755)
    return root


def packed(folder, wheel):
    """Packs a folder as `wheel pack` does, without the package `wheel`."""
    info = next(folder.glob("*.dist-info"))
    files = sorted(path for path in folder.rglob("*") if path.is_file())
    digests = {path: base64.urlsafe_b64encode(hashlib.sha256(path.read_bytes()).digest()).rstrip(b"=").decode() for path in files}
    record = "".join(f"{path.relative_to(folder)},sha256={digest},{path.stat().st_size}\n" for path, digest in digests.items())
    (info / "RECORD").write_text(record + f"{info.name}/RECORD,,\n")
    with zipfile.ZipFile(wheel, "w") as archive:
        for path in [*files, info / "RECORD"]:
            archive.write(path, path.relative_to(folder).as_posix())
    return wheel


def test_wheel_of_the_command_starts_its_program(tree, tmp_path):
    serve_wheel.lay_out(tree, tmp_path / "laid", "1.2", "linux_x86_64")
    wheel = packed(tmp_path / "laid", tmp_path / "quire_serve-1.2-py3-none-linux_x86_64.whl")
    site = tmp_path / "site"
    subprocess.run([sys.executable, "-m", "pip", "install", "-q", "--no-index", "--disable-pip-version-check", "--target", site, wheel], check=True)
    environment = {**os.environ, "PYTHONPATH": str(site)}
    for command in ([site / "bin/quire"], [sys.executable, "-m", "quire_serve"]):
        done = subprocess.run([*command, "serve", "a model", "--port=1"], env=environment, capture_output=True, text=True, check=True)
        assert done.stdout == f"{site}/quire_serve/bin serve a model --port=1\n"
    (site / "quire_serve/bin/quire").unlink()
    failed = subprocess.run([site / "bin/quire"], env=environment, capture_output=True, text=True, check=False)
    assert failed.returncode == 1 and "bin/quire cannot be started: No such file or directory. Install the package quire-serve again" in failed.stderr


def test_wheel_of_the_command_fits_every_python_and_shares_no_file_with_the_library(tree, tmp_path):
    laid = tmp_path / "laid"
    serve_wheel.lay_out(tree, laid, "1.2", "manylinux_2_35_x86_64")
    info = laid / "quire_serve-1.2.dist-info"
    assert {path.name for path in laid.iterdir()} == {"quire_serve", info.name}, "the folder quire belongs to the library"
    assert "\nTag: py3-none-manylinux_2_35_x86_64\n" in (info / "WHEEL").read_text() and "cp3" not in (info / "WHEEL").read_text()
    assert (info / "entry_points.txt").read_text() == "[console_scripts]\nquire = quire_serve.__main__:main\n"
    metadata = (info / "METADATA").read_text(encoding="utf-8")
    assert f"\nProject-URL: Homepage, {project_url.read()}\n" in metadata and "\nName: quire-serve\nVersion: 1.2\n" in metadata
    assert (info / "licenses/copyright").read_text() == "licences"
    assert (laid / "quire_serve/bin/quire").stat().st_mode & 0o111 == 0o111
    assert [path.name for path in (laid / "quire_serve/lib/quire").iterdir()] == ["libfirst.so.1"]
    # The wheel of the library must not install a command of the same name.
    assert "console_scripts" not in (REPO / "tools/dev/package.sh").read_text(encoding="utf-8")
    assert "[project.scripts]" not in (REPO / "python/pyproject.toml").read_text(encoding="utf-8")


def test_incomplete_trees_are_refused(tree, tmp_path):
    (tree / "bin/quire").unlink()
    done = subprocess.run([sys.executable, "-m", "package.serve_wheel", tree, tmp_path / "laid", "--version", "1", "--tag", "linux_x86_64"],
                          env={**os.environ, "PYTHONPATH": str(REPO / "tools")}, capture_output=True, text=True, check=False)
    assert done.returncode == 1 and "bin/quire is missing. Give the tree of the tarball" in done.stderr


def test_library_names_the_package_of_the_command(tmp_path):
    """The library's `python -m quire` needs no built module to say this."""
    command = [sys.executable, "-c", "import runpy; runpy.run_path('python/quire/__main__.py', run_name='__main__')"]
    done = subprocess.run(command, cwd=REPO, env={**os.environ, "PYTHONPATH": str(tmp_path)}, capture_output=True, text=True, check=False)
    assert done.returncode == 1 and "install the package quire-serve" in done.stderr


@pytest.mark.parametrize(("shown", "platform", "reason"), [
    ({"overall_tag": "manylinux_2_36_x86_64", "external_libs": {}}, "manylinux_2_36_x86_64", None),
    ({"overall_tag": "linux_x86_64", "external_libs": {"libssl.so.3": "/lib/libssl.so.3"}}, None, "libssl.so.3"),
    ({"overall_tag": "linux_x86_64", "external_libs": {}}, None, "'linux_x86_64' instead of a manylinux tag"),
])
def test_tag_is_the_one_that_auditwheel_found(shown, platform, reason):
    found, why = platform_tag.platform_of(shown)
    assert found == platform and (reason is None and why is None or reason in why)


COPYRIGHT = "Format: x\n\nFiles: debian/*\nLicense: GPL-2\n\nFiles: *\nCopyright: 2020\nLicense: Expat\n Permission\n\nLicense: GPL-2\n text\n"


def test_sbom_lists_carried_libraries_with_their_digests(tmp_path, monkeypatch):
    libraries = tmp_path / "lib"
    libraries.mkdir()
    for name in ("libssl.so.3", "libcrypto.so.3"):
        (libraries / name).write_text(name)
    carried = tmp_path / "carried"
    carried.write_text("libssl.so.3 libssl3\nlibcrypto.so.3 libssl3\n")
    crates = tmp_path / "crates"
    crates.write_text("serde v1.0.219|MIT OR Apache-2.0\nmemchr v2.7.4|Unlicense/MIT\n")
    monkeypatch.setattr(sbom, "installed", lambda name: sbom.DebianPackage(name, "1:3.0+x-1", "amd64", "openssl", "https://ssl.example", "Apache-2.0"))

    def made():
        import argparse
        return sbom.make(argparse.Namespace(version="0.1", commit="c0ffee", time=0, carried=carried, libraries=libraries, compiled_in=["libcli11-dev", "libssl3"],
                                            crates=crates, pypi=["nanobind==2.12.0"]))

    document = made()
    assert document == made() and document["metadata"]["timestamp"] == "1970-01-01T00:00:00Z"
    assert document["bomFormat"] == "CycloneDX" and document["specVersion"] == "1.5" and document["serialNumber"].startswith("urn:uuid:")
    by_name = {one["name"]: one for one in document["components"]}
    assert sorted(by_name) == ["libcli11-dev", "libssl3", "memchr", "nanobind", "serde"]
    assert by_name["libssl3"]["purl"] == "pkg:deb/debian/libssl3@1%3A3.0%2Bx-1?arch=amd64&upstream=openssl"
    assert [(file["name"], file["hashes"][0]["content"]) for file in by_name["libssl3"]["components"]] == [
        (name, hashlib.sha256(name.encode()).hexdigest()) for name in ("libcrypto.so.3", "libssl.so.3")]
    assert by_name["libssl3"]["licenses"] == [{"license": {"id": "Apache-2.0"}}]
    assert by_name["serde"]["licenses"] == [{"expression": "MIT OR Apache-2.0"}] and by_name["memchr"]["licenses"] == [{"expression": "Unlicense OR MIT"}]
    assert by_name["libcli11-dev"]["properties"][0]["value"] == sbom.COMPILED_IN
    references = [one["bom-ref"] for one in document["components"]]
    assert len(set(references)) == len(references) and document["dependencies"][0]["dependsOn"] == references
    (libraries / "libextra.so").touch()
    with pytest.raises(sbom.SbomError, match="differ in libextra.so"):
        made()
    carried.write_text("libssl.so.3 libssl3\nlibcrypto.so.3\n")
    with pytest.raises(sbom.SbomError, match="no Debian package contains libcrypto.so.3"):
        made()


def test_licence_of_a_debian_package_is_the_one_of_most_files():
    assert sbom.main_licence(COPYRIGHT) == "Expat" and sbom.licences("Expat") == {"licenses": [{"license": {"id": "MIT"}}]}
    assert sbom.main_licence("This package was made by hand.\n") == "" and sbom.licences("") == {}
    assert sbom.licences("NRL-2-clause") == {"licenses": [{"license": {"name": "NRL-2-clause"}}]}


def test_sbom_lists_the_libraries_of_the_licence_file():
    script = (REPO / "tools/dev/package.sh").read_text(encoding="utf-8")
    assert script.count("$COMPILED_IN") == 2, "licenses() and make_sbom() use one list"
    crates = "fancy-regex v0.14.0|MIT\nnot a crate\n"
    with pytest.raises(sbom.SbomError, match="the line 'not a crate'"):
        list(sbom.of_crates(crates))


@pytest.mark.parametrize(("url", "problem"), [
    ("https://git.example/quire/quire", None),
    ("http://git.example/quire", "is not an address like"),
    ("git@git.example:quire", "is not an address like"),
    ("https://git.example/quire.git", "must not end with / or .git"),
    ("https://git.example/quire/", "must not end with / or .git"),
])
def test_address_is_checked(url, problem):
    found = project_url.problem_of(url)
    assert found is None if problem is None else problem in found


def test_address_is_changed_in_all_files(tmp_path):
    files = {"tools/project_url.txt": "https://example.org/quire\n", "README.md": "git clone https://example.org/quire.git && cd quire\n",
             "docs/tasks/serve.md": "https://example.org/quire/issues https://example.org/quires https://example.org/\n",
             "python/pyproject.toml": 'Homepage = "https://example.org/quire"\n'}
    for name, text in files.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)
    project_url.set_url(tmp_path, "https://git.example/team/quire")
    assert project_url.read(tmp_path) == "https://git.example/team/quire"
    assert (tmp_path / "README.md").read_text() == "git clone https://git.example/team/quire.git && cd quire\n"
    assert (tmp_path / "docs/tasks/serve.md").read_text() == "https://git.example/team/quire/issues https://example.org/quires https://example.org/\n"
    assert (tmp_path / "python/pyproject.toml").read_text() == 'Homepage = "https://git.example/team/quire"\n'
    assert list(project_url.wrong_clones("git clone -q https://example.org/quire.git x", "https://git.example/team/quire")) == ["https://example.org/quire.git"]


def test_placeholder_stops_a_release():
    done = subprocess.run([REPO / "tools/project_url.py", "--release"], capture_output=True, text=True, check=False)
    if "example.org" in project_url.read():
        assert done.returncode == 1 and "is a placeholder. Set the project's address: tools/project_url.py --set URL" in done.stderr
    else:
        assert done.returncode == 0 and done.stdout.strip() == project_url.read()


def test_packages_have_the_address_and_one_version():
    assert project_url.problem_of(project_url.read()) is None
    project = (REPO / "python/pyproject.toml").read_text(encoding="utf-8")
    version = re.search(r'^version = "(.*)"$', project, re.MULTILINE)[1]
    assert f'Homepage = "{project_url.read()}"\n' in project and f'"quire-serve=={version}"' in project
    assert "file(STRINGS tools/project_url.txt " in (REPO / "CMakeLists.txt").read_text(encoding="utf-8")
    assert "Homepage: @URL@\n" in (REPO / "tools/package/debian/control.in").read_text(encoding="utf-8")


@pytest.mark.parametrize(("arguments", "asked", "said"), [
    ((), "", "usage: tools/test_packages.sh FOLDER"),
    (("roots",), "serve wheels", "QUIRE_TEST_PACKAGES: unknown test 'wheels'; the tests are: deb "),
    (("roots", "no.gguf"), "serve", "MODEL: there is no file no.gguf"),
])
def test_script_that_tries_packages_checks_its_arguments(tmp_path, arguments, asked, said):
    done = subprocess.run([REPO / "tools/test_packages.sh", *arguments], cwd=tmp_path, env={**os.environ, "QUIRE_TEST_PACKAGES": asked},
                          capture_output=True, text=True, check=False)
    assert done.returncode != 0 and said in done.stderr and list(tmp_path.iterdir()) == []


def steps(workflow):
    for job in workflow["jobs"].values():
        yield from job.get("steps", ())


@pytest.mark.parametrize("file", WORKFLOWS, ids=lambda file: file.name)
def test_workflows_pin_actions_and_start_existing_files(file):
    text = file.read_text(encoding="utf-8")
    workflow = yaml.safe_load(text)
    assert workflow["permissions"] == {"contents": "read"}
    for used in re.findall(r"uses: (.*)", text):
        assert used.startswith("./.github/workflows/") or re.fullmatch(r"[\w-]+/[\w-]+@[0-9a-f]{40} # v\d+\.\d+\.\d+", used), used
    commands = set(re.findall(r"\bcmd_(\w+)\(\)", (REPO / "tools/dev/commands.sh").read_text(encoding="utf-8")))
    for step in steps(workflow):
        for name in re.findall(r"\./dev (\w+)", step.get("run", "")):
            assert name in commands, name
        for name in re.findall(r"\b(?:tools|deploy|\.ci)/[\w./-]+", step.get("run", "")):
            assert (REPO / name).exists(), name


def test_ci_runs_the_tests_that_a_change_must_pass():
    workflow = yaml.safe_load((REPO / ".github/workflows/ci.yml").read_text(encoding="utf-8"))
    commands = [step.get("run", "") for step in steps(workflow)]
    assert commands[-1] == re.findall(r"\./dev .*", (REPO / ".ci/run").read_text())[0]
    assert workflow["jobs"]["test"]["container"] == "debian:12", "./dev installs Debian 12 packages"


def test_release_publishes_only_tested_and_attested_packages():
    jobs = yaml.safe_load((REPO / ".github/workflows/release.yml").read_text(encoding="utf-8"))["jobs"]
    assert jobs["test"]["uses"] == "./.github/workflows/ci.yml" and set(jobs["publish"]["needs"]) == {"test", "package"}
    built = [step.get("run", "") for step in jobs["package"]["steps"]]
    order = ["--release", "./dev package", "tools/test_packages.sh"]
    assert [next(place for place, run in enumerate(built) if word in run) for word in order] == sorted(
        next(place for place, run in enumerate(built) if word in run) for word in order)
    published = [step.get("uses", step.get("run", "")) for step in jobs["publish"]["steps"]]
    attested = next(place for place, step in enumerate(published) if step.startswith("actions/attest-build-provenance@"))
    assert attested < next(place for place, step in enumerate(published) if step.startswith("gh release create"))
    for name in ("image", "pypi"):
        assert jobs[name]["needs"] == "publish" and jobs[name]["environment"]
    # A job may write only what its comment names.
    writes = {name: {right for right, level in job.get("permissions", {}).items() if level == "write"} for name, job in jobs.items()}
    assert writes == {"test": set(), "package": set(), "publish": {"contents", "id-token", "attestations"},
                      "image": {"packages", "id-token", "attestations"}, "pypi": {"id-token"}}


def test_image_is_built_from_the_tarball():
    text = (REPO / "deploy/Containerfile").read_text(encoding="utf-8")
    instructions = re.findall(r"^([A-Z]+) (.*(?:\\\n.*)*)", text.replace("\\\n", " "), re.MULTILINE)
    copies = [words for name, words in instructions if name == "COPY"]
    assert copies == ["dist/quire-*-linux-*.tar.gz /tmp/", "--from=unpacked /quire /usr/local"]
    ignored = (REPO / ".dockerignore").read_text().split()
    assert ignored == ["*", "!dist/quire-*-linux-*.tar.gz"], "the context contains only the tarball"
    last = dict(instructions)
    assert json.loads(last["ENTRYPOINT"]) == ["quire", "serve"] and last["USER"] == "10001:10001"
    assert "-o 10001 -g 10001" in text and last["VOLUME"] == "/var/lib/quire" and last["ENV"].split("=")[1].startswith("/var/lib/quire/")
    assert "ca-certificates" in text, "models of the hub are downloaded over TLS"
