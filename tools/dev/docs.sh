# Sourced by ./dev docs: builds the site of docs/ (tools/docs/mkdocs.yml) in build/site, and validates deploy/kubernetes. Needs no network
# when the packages are installed.
readonly APT_DOCS="doxygen"
# A separate environment, so that its pinned packages (Markdown, requests) do not affect tests.
readonly DOCS_VENV="$CACHE/docs"

need_docs() {
  local stamp
  stamp="$DOCS_VENV/.ready-$(sha256sum tools/requirements-docs.txt | cut -c1-16)"
  [ -e "$stamp" ] && return 0
  say "Installing mkdocs and kubernetes-validate (190 MB, tools/requirements-docs.txt) in .cache/docs"
  [ -x "$DOCS_VENV/bin/pip" ] || /usr/bin/python3 -m venv --clear "$DOCS_VENV" || die_of "the Python environment in .cache/docs cannot be made"
  "$DOCS_VENV/bin/pip" install --disable-pip-version-check -q --no-deps -r tools/requirements-docs.txt || die_of "pip failed"
  touch "$stamp"
}

# Runs doxygen on the headers. Without doxygen, prints a message, and the site has no pages of the headers.
read_headers() {
  local said
  command -v doxygen >/dev/null || try_apt $APT_DOCS || { say "Without the C++ headers: Debian's doxygen is missing (apt-get install $APT_DOCS)"; return 0; }
  rm -rf build/docs
  mkdir -p build/docs
  said=$({ cat tools/docs/Doxyfile && echo "OUTPUT_DIRECTORY = build/docs"; } | doxygen - 2>&1) || die "doxygen failed: $said"
  [ -z "$said" ] || die "doxygen does not understand the headers: $said"
  export QUIRE_DOCS_XML="$PWD/build/docs/xml"
}

build_docs() {
  local serve=""
  case "${1:-}" in "") ;; --serve) serve=yes ;; *) die "docs: unknown argument '$1'; only --serve is known" ;; esac
  need_docs
  read_headers
  if [ -x build/release/quire ]; then
    export QUIRE_BINARY="$PWD/build/release/quire"
  else
    say "Without the flags of each command: build/release/quire is not built (./dev build)"
  fi
  if [ -e build/release/python/quire/_engine.pyi ]; then
    export QUIRE_PYTHON_PACKAGE="$PWD/build/release/python"
  else
    say "Without the classes of the Python package: build/release/python is not built (./dev build)"
  fi
  export NO_MKDOCS_2_WARNING=1
  if [ -n "$serve" ]; then
    say "http://127.0.0.1:8001, rebuilt when docs/ or tools/docs change"
    exec "$DOCS_VENV/bin/mkdocs" serve -q -f tools/docs/mkdocs.yml -a 127.0.0.1:8001 -w docs -w tools/docs
  fi
  "$DOCS_VENV/bin/mkdocs" build -q --strict --clean -f tools/docs/mkdocs.yml -d "$PWD/build/site" || die "the site was not built"
  python3 tools/docs/check_site.py build/site || die "the site is not whole"
  say "Checking deploy/kubernetes against Kubernetes' schemas"
  "$DOCS_VENV/bin/kubernetes-validate" --strict --quiet deploy/kubernetes/*.yaml || die "a manifest is not valid"
  say "The site is in build/site: open build/site/index.html, or run ./dev docs --serve"
}
