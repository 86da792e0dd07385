"""Writes the SBOM of the packages (CycloneDX 1.5, JSON) to standard output: all libraries that the packages contain, with versions, licences
and digests.

tools/dev/package.sh calls it with the libraries that the tarball carries, the Debian packages and crates that are compiled into the programs,
and packages of PyPI. One commit gives the same bytes: the time is the commit's, and the serial number is computed from the components.
"""
import argparse
import dataclasses
import datetime
import hashlib
import json
import pathlib
import re
import subprocess
import sys
import urllib.parse
import uuid

import project_url

DOCUMENTS = pathlib.Path("/usr/share/doc")
CARRIED, COMPILED_IN = "shared library in lib/quire", "compiled into the programs"
# Debian's names of licences, and their names in SPDX
SPDX = {
    "expat": "MIT", "mit": "MIT", "apache-2.0": "Apache-2.0", "bsl-1.0": "BSL-1.0", "bsd-2-clause": "BSD-2-Clause", "bsd-3-clause": "BSD-3-Clause",
    "lgpl-2.1": "LGPL-2.1-only", "lgpl-2.1+": "LGPL-2.1-or-later", "lgpl-2": "LGPL-2.0-only", "lgpl-2+": "LGPL-2.0-or-later",
    "lgpl-3+": "LGPL-3.0-or-later", "zlib": "Zlib", "isc": "ISC", "mpl-2.0": "MPL-2.0",
}  # fmt: skip


class SbomError(Exception):
    pass


@dataclasses.dataclass(frozen=True)
class DebianPackage:
    name: str
    version: str
    architecture: str
    source: str
    homepage: str
    licence: str


def main_licence(text):
    """Returns the licence of most files of a Debian package: the `License:` of `Files: *` in its copyright file, or an empty string."""
    for stanza in re.split(r"\n\s*\n", text):
        if re.search(r"^Files:\s*\*", stanza, re.MULTILINE) and (found := re.search(r"^License:[ \t]*(\S.*)$", stanza, re.MULTILINE)):
            return found[1].strip()
    return ""


def installed(name):
    """Returns the installed Debian package with this name."""
    shown = "${Version}\\n${Architecture}\\n${source:Package}\\n${Homepage}\\n"
    done = subprocess.run(["dpkg-query", "-W", "-f", shown, name], capture_output=True, text=True, check=False)
    if done.returncode:
        raise SbomError(f"{name}: the Debian package is not installed. Install it, or correct the name")
    version, architecture, source, homepage = done.stdout.split("\n")[:4]
    about = DOCUMENTS / name / "copyright"
    licence = main_licence(about.read_text(encoding="utf-8", errors="replace")) if about.exists() else ""
    return DebianPackage(name, version, architecture, source, homepage, licence)


def licences(name):
    """Returns CycloneDX's `licenses` for a licence as Debian or Cargo names it."""
    if not name:
        return {}
    if spdx := SPDX.get(name.lower()):
        return {"licenses": [{"license": {"id": spdx}}]}
    # Cargo's licences are SPDX expressions; "MIT/Apache-2.0" is an old form of OR.
    if " OR " in name or " AND " in name or "/" in name:
        return {"licenses": [{"expression": re.sub(r"\s*/\s*", " OR ", name)}]}
    return {"licenses": [{"license": {"name": name}}]}


def component(kind, name, version, purl, how, **more):
    properties = {"properties": [{"name": "quire:linkage", "value": how}]} if how else {}
    return {"type": kind, "bom-ref": purl, "name": name, "version": version, "purl": purl, **more, **properties}


def of_debian(package, how, files=()):
    quoted = {part: urllib.parse.quote(getattr(package, part), safe="") for part in ("name", "version", "architecture")}
    purl = f"pkg:deb/debian/{quoted['name']}@{quoted['version']}?arch={quoted['architecture']}"
    if package.source != package.name:
        purl += f"&upstream={package.source}"
    more = licences(package.licence)
    if package.homepage:
        more["externalReferences"] = [{"type": "website", "url": package.homepage}]
    if files:
        more["components"] = [
            {"type": "file", "bom-ref": f"file:{file.name}", "name": file.name,
             "hashes": [{"alg": "SHA-256", "content": hashlib.sha256(file.read_bytes()).hexdigest()}]} for file in sorted(files)
        ]  # fmt: skip
    return component("library", package.name, package.version, purl, how, **more)


def of_crates(text):
    """Yields the components of lines `NAME vVERSION|LICENCE`, which `cargo tree` has written."""
    for line in filter(None, text.split("\n")):
        found = re.fullmatch(r"(\S+) v(\S+)\|(.*)", line)
        if not found:
            raise SbomError(f"--crates: the line '{line}' does not have the form NAME vVERSION|LICENCE. Build llguidance again")
        name, version, licence = found.groups()
        yield component("library", name, version, f"pkg:cargo/{name}@{urllib.parse.quote(version)}", COMPILED_IN, **licences(licence.strip()))


def of_pypi(pin):
    name, equal, version = pin.partition("==")
    if not equal:
        raise SbomError(f"--pypi: '{pin}' is not NAME==VERSION")
    return component("library", name, version, f"pkg:pypi/{name}@{version}", "compiled into the Python package")


def document(version, commit, time, components):
    components = sorted(components, key=lambda one: one["bom-ref"])
    url = project_url.read()
    root = component("application", "quire", version, f"pkg:generic/quire@{version}", "", licenses=[{"license": {"id": "Apache-2.0"}}],
                     externalReferences=[{"type": "website", "url": url}, *([{"type": "vcs", "url": f"{url}.git", "comment": commit}] if commit else [])])
    serial = uuid.uuid5(uuid.NAMESPACE_URL, json.dumps([root, components], sort_keys=True))
    made = datetime.datetime.fromtimestamp(time, datetime.timezone.utc).strftime("%Y-%m-%dT%H:%M:%SZ")
    return {
        "bomFormat": "CycloneDX", "specVersion": "1.5", "serialNumber": f"urn:uuid:{serial}", "version": 1,
        "metadata": {"timestamp": made, "component": root},
        "components": components,
        "dependencies": [{"ref": root["bom-ref"], "dependsOn": [one["bom-ref"] for one in components]}],
    }  # fmt: skip


def carried_files(listed, libraries):
    """Returns {Debian package: its files}, from lines `FILE PACKAGE`. Fails unless the lines name exactly the files in the folder."""
    lines = [line.split() for line in listed.split("\n") if line.strip()]
    if bad := next((line for line in lines if len(line) != 2), None):
        raise SbomError(f"--carried: no Debian package contains {bad[0]}")
    differ = {line[0] for line in lines} ^ {path.name for path in libraries.iterdir()}
    if differ:
        raise SbomError(f"--carried: the list and {libraries} differ in {', '.join(sorted(differ))}")
    packages = {}
    for file, package in lines:
        packages.setdefault(package, []).append(libraries / file)
    return packages


def make(asked):
    carried = carried_files(asked.carried.read_text(encoding="utf-8"), asked.libraries)
    components = [of_debian(installed(name), CARRIED, files) for name, files in carried.items()]
    components += [of_debian(installed(name), COMPILED_IN) for name in asked.compiled_in if name not in carried]
    components += of_crates(asked.crates.read_text(encoding="utf-8"))
    components += [of_pypi(pin) for pin in asked.pypi]
    return document(asked.version, asked.commit, asked.time, components)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--version", required=True)
    parser.add_argument("--commit", default="", help="the commit that was built")
    parser.add_argument("--time", type=int, required=True, help="seconds since 1970")
    parser.add_argument("--carried", type=pathlib.Path, required=True, help="lines FILE PACKAGE: the libraries of the tarball")
    parser.add_argument("--libraries", type=pathlib.Path, required=True, help="the folder with these libraries")
    parser.add_argument("--compiled-in", nargs="*", default=[], metavar="PACKAGE", help="Debian packages whose code is in the programs")
    parser.add_argument("--crates", type=pathlib.Path, required=True, help="lines NAME vVERSION|LICENCE")
    parser.add_argument("--pypi", nargs="*", default=[], metavar="NAME==VERSION")
    try:
        print(json.dumps(make(parser.parse_args()), indent=1, ensure_ascii=False))
    except (SbomError, OSError) as error:
        sys.exit(f"sbom: {error}")


if __name__ == "__main__":
    main()
