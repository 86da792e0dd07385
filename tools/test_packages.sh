#!/usr/bin/env bash
# Installs each package of `./dev package` in a fresh, minimal Debian 12 root without a compiler, lets the server there answer a chat
# request, and prints how long that took. Fails if the installation and the answer together take more than 30 s. If systemd-nspawn is
# installed, the script also boots a root with systemd, and the service of the .deb answers there.
#
# Usage (as root): tools/test_packages.sh FOLDER [MODEL] Needs debootstrap. FOLDER keeps the base roots; MODEL is a GGUF file (default: the
# file that ./dev serve fetches).
set -euo pipefail
folder=$(realpath -m "${1:?usage: tools/test_packages.sh FOLDER [MODEL]}")
repo=$(git -C "$(dirname "$0")" rev-parse --show-toplevel)
model="${2:-$repo/.cache/models/SmolLM2-135M-Instruct.Q4_1.gguf}"
limit_s=30
[ -f "$model" ] || { echo "no model at $model: ./dev serve fetches it, or name one" >&2; exit 2; }
compgen -G "$repo/dist/*.deb" >/dev/null || { echo "nothing in $repo/dist: run ./dev package" >&2; exit 2; }

mounted=() server=""
cleanup() {
  [ -z "$server" ] || kill "$server" 2>/dev/null || true
  for point in "${mounted[@]}"; do umount -l "$point"; done
  mounted=()
}
trap cleanup EXIT

clean=(/usr/bin/env -i HOME=/root PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin LANG=C.UTF-8)
inside() { chroot "$root" "${clean[@]}" "$@"; }

# base NAME [DEBIAN_PACKAGE...]: makes a base root once. Tests copy it.
base() {
  local name="$1"
  shift
  [ ! -e "$folder/$name.ready" ] || return 0
  rm -rf "${folder:?}/$name"
  debootstrap --variant=minbase --include="ca-certificates${1:+,$(IFS=,; echo "$*")}" bookworm "$folder/$name" >"$folder/$name.log" 2>&1
  # Copies this machine's settings for access to Debian and PyPI.
  cp /etc/ssl/certs/ca-certificates.crt "$folder/$name/etc/ssl/certs/"
  cp /etc/resolv.conf "$folder/$name/etc/resolv.conf"
  [ ! -f /etc/apt/apt.conf ] || cp /etc/apt/apt.conf "$folder/$name/etc/apt/"
  cp -r /etc/apt/apt.conf.d/. "$folder/$name/etc/apt/apt.conf.d/"
  touch "$folder/$name.ready"
}

# fresh BASE: copies the base root to $root, and adds the model and the packages.
fresh() {
  root="$folder/root"
  rm -rf "$root"
  cp -a "$folder/$1" "$root"
  cp "$model" "$root/model.gguf"
  mkdir "$root/dist"
  cp "$repo"/dist/* "$root/dist/"
  for point in proc sys dev; do
    mount --rbind "/$point" "$root/$point"
    mount --make-rslave "$root/$point"
    mounted+=("$root/$point")
  done
  for tool in cc gcc g++ clang clang-19 ld as make cmake; do
    ! inside sh -c "command -v $tool" || { echo "this root has $tool" >&2; exit 1; }
  done
}

# answers LABEL COMMAND: serves the model with COMMAND, asks one question, stops the server, and prints the time since $start. Callers set
# $start when the installation begins.
answers() {
  local seconds
  inside "$2" --version
  # Calls chroot directly instead of `inside`, so that $! is the server, which `stop` ends.
  chroot "$root" "${clean[@]}" "$2" serve /model.gguf --port 8124 >"$folder/$1.log" 2>&1 &
  server=$!
  ask || { tail "$folder/$1.log" >&2; exit 1; }
  seconds=$(echo "$(date +%s.%N) $start" | awk '{printf "%.1f", $1 - $2}')
  stop
  echo "$1: from the installation to an answered chat request: $seconds s"
  awk -v seconds="$seconds" -v limit="$limit_s" 'BEGIN {exit seconds > limit}' || { echo "$1: more than $limit_s s" >&2; exit 1; }
}

stop() {
  kill -TERM "$server"
  wait "$server"
  server=""
}

ask() {
  python3 - 8124 <<'EOF'
import json, sys, time, urllib.request
url = f"http://127.0.0.1:{sys.argv[1]}"
body = {"messages": [{"role": "user", "content": "What is the capital of France?"}], "max_tokens": 24, "temperature": 0}
request = urllib.request.Request(url + "/v1/chat/completions", json.dumps(body).encode(), {"Content-Type": "application/json"})
for _ in range(300):
    try:
        answer = json.load(urllib.request.urlopen(request, timeout=60))
        break
    except OSError:
        time.sleep(0.1)
print("answer:", answer["choices"][0]["message"]["content"])
EOF
}

has() {
  for file in "$@"; do [ -s "$root$file" ] || { echo "$file is missing" >&2; exit 1; }; done
}

# finds_c_api FOLDER: checks that FOLDER has the C API, and that its library finds all libraries that it needs.
finds_c_api() {
  has "$1/include/quire/quire.h"
  inside sh -c 'library=$(find "$0/lib" -name libquire_c.so.0) && test -n "$library" && ! ldd "$library" | grep "not found"' "$1" ||
    { echo "libquire_c.so.0 in $1 is missing or cannot be loaded" >&2; exit 1; }
  inside sh -c 'find "$0/lib" -path "*/pkgconfig/quire.pc" | grep -q .' "$1" || { echo "quire.pc is missing in $1" >&2; exit 1; }
}

install_deb() {
  inside apt-get update -qq
  inside env DEBIAN_FRONTEND=noninteractive sh -c 'apt-get install -y -qq --no-install-recommends -o Dpkg::Use-Pty=0 /dist/quire_*.deb' \
    >"$folder/apt.log" 2>&1 || { tail "$folder/apt.log" >&2; exit 1; }
}

test_deb() {
  fresh minbase
  start=$(date +%s.%N)
  install_deb
  answers deb quire
  has /usr/share/man/man1/quire.1.gz /usr/lib/systemd/system/quire.service /etc/default/quire /usr/share/bash-completion/completions/quire \
    /usr/share/zsh/vendor-completions/_quire /usr/share/doc/quire/copyright
  finds_c_api /usr
  inside apt-get purge -y -qq quire >>"$folder/apt.log" 2>&1
  for file in /usr/bin/quire /etc/default/quire /usr/lib/systemd/system/quire.service /usr/include/quire/quire.h; do
    [ ! -e "$root$file" ] || { echo "$file is left after a purge" >&2; exit 1; }
  done
  cleanup
}

test_tarball() {
  fresh minbase
  start=$(date +%s.%N)
  inside sh -c 'tar xzf /dist/quire-*.tar.gz --strip-components=1 -C /usr/local'
  answers tarball quire
  has /usr/local/share/man/man1/quire.1 /usr/local/lib/systemd/system/quire.service /usr/local/share/bash-completion/completions/quire
  finds_c_api /usr/local
  cleanup
}

test_wheel() {
  fresh python
  start=$(date +%s.%N)
  inside python3 -m venv /venv
  inside sh -c '/venv/bin/pip install -q --no-index --disable-pip-version-check /dist/quire-*.whl'
  answers wheel /venv/bin/quire
  inside sh -c 'cd /venv/lib/python3*/site-packages/quire && test -e py.typed -a -s _core.pyi -a -s _engine.pyi' || { echo "the stubs are missing" >&2; exit 1; }
  inside /venv/bin/python -c 'import quire; core = quire.Core(quire.CoreConfig(num_blocks=8, max_model_len=64)); core.add([1, 2]); print(core.schedule())'
  inside /venv/bin/python -c 'import quire; engine = quire.Engine("/model.gguf", kv_cache_memory="64MiB", max_model_len=256); print(engine.generate("One, two,", max_tokens=4).text)'
  cleanup
}

# Boots the root. systemd runs the service, with a disk tier in the only folder that the service may write to.
test_service() {
  fresh system
  install_deb
  inside install -D -m 644 /model.gguf /usr/local/share/quire/model.gguf
  sed -i 's|^QUIRE_FLAGS=.*|QUIRE_FLAGS=--port 8124 --kv-disk /var/lib/quire/kv --kv-disk-budget 64MiB|' "$root/etc/default/quire"
  inside systemctl enable quire.service 2>>"$folder/apt.log"
  cleanup
  systemd-nspawn -q -D "$root" -b --register=no --keep-unit >"$folder/service.log" 2>&1 &
  server=$!
  ask || { tail "$folder/service.log" >&2; exit 1; }
  stop
  has /var/lib/private/quire/kv/quire-blocks
  echo "service: answered from its sandbox"
}

mkdir -p "$folder"
base minbase
base python python3-venv
for name in deb tarball wheel; do
  ls -l "$repo"/dist/*"$(case $name in deb) echo .deb ;; tarball) echo .tar.gz ;; wheel) echo .whl ;; esac)"
  "test_$name"
done
if command -v systemd-nspawn >/dev/null; then
  base system systemd-sysv dbus
  test_service
else
  echo "service: not tested, because systemd-nspawn is not installed (systemd-container)"
fi
rm -rf "$root"
