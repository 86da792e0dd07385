#!/usr/bin/env bash
# Installs each package of `./dev package` in a fresh, minimal Debian 12 root without a compiler, lets the server there answer a chat
# request, and prints how long that took. Fails if the installation and the answer together take more than 30 s. The wheel of the command and
# the tarball are also installed in a Debian 13 root (Python 3.13), if debootstrap can make one. deploy/Containerfile is built with buildah in
# a chroot, from the tarball and a Debian 12 root in place of debian:12-slim, and its server answers too. If systemd-nspawn is installed, the
# script also boots a root with systemd, and the service of the .deb answers there. The last lines list the seconds of each package.
#
# Usage (as root): tools/test_packages.sh FOLDER [MODEL] Needs debootstrap. FOLDER keeps the base roots; MODEL is a GGUF file (default: the
# file that ./dev serve fetches, which this script fetches too). QUIRE_TEST_PACKAGES="serve trixie" runs only these tests.
set -euo pipefail
folder=$(realpath -m "${1:?usage: tools/test_packages.sh FOLDER [MODEL]}")
repo=$(realpath "$(dirname "$0")/..")
model="${2:-$repo/.cache/models/SmolLM2-135M-Instruct.Q4_1.gguf}"
limit_s=30
tests="deb tarball serve wheel trixie image service"
for name in ${QUIRE_TEST_PACKAGES:-}; do
  [[ " $tests " == *" $name "* ]] || { echo "QUIRE_TEST_PACKAGES: unknown test '$name'; the tests are: $tests" >&2; exit 2; }
done
if [ $# -lt 2 ] && [ ! -f "$model" ]; then (cd "$repo" && source tools/dev/setup.sh && need_model); fi
[ -f "$model" ] || { echo "MODEL: there is no file $model" >&2; exit 2; }
compgen -G "$repo/dist/*.deb" >/dev/null || { echo "nothing in $repo/dist: run ./dev package" >&2; exit 2; }

mounted=() server="" results=()
cleanup() {
  [ -z "$server" ] || kill "$server" 2>/dev/null || true
  for point in "${mounted[@]}"; do umount -l "$point"; done
  mounted=()
}
trap cleanup EXIT

clean=(/usr/bin/env -i HOME=/root PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin LANG=C.UTF-8)
inside() { chroot "$root" "${clean[@]}" "$@"; }

# base NAME SUITE [DEBIAN_PACKAGE...]: makes a base root of this suite of Debian once. Tests copy it.
base() {
  local name="$1" suite="$2"
  shift 2
  [ ! -e "$folder/$name.ready" ] || return 0
  rm -rf "${folder:?}/$name"
  debootstrap --variant=minbase --include="ca-certificates${1:+,$(IFS=,; echo "$*")}" "$suite" "$folder/$name" >"$folder/$name.log" 2>&1 || return 1
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
  # buildah needs a root that is a mount point.
  mount --bind "$root" "$root"
  for point in proc sys dev; do
    mount --rbind "/$point" "$root/$point"
    mount --make-rslave "$root/$point"
    mounted+=("$root/$point")
  done
  mounted+=("$root")
  for tool in cc gcc g++ clang clang-19 ld as make cmake; do
    ! inside sh -c "command -v $tool" || { echo "this root has $tool" >&2; exit 1; }
  done
}

# answers LABEL COMMAND [any-status]: serves the model with COMMAND, asks one question, stops the server, and adds the time since $start to
# $results. Callers set $start when the installation begins.
answers() {
  local seconds
  inside "$2" --version
  # Calls chroot directly instead of `inside`, so that $! is the server, which `stop` ends.
  chroot "$root" "${clean[@]}" "$2" serve /model.gguf --port 8124 >"$folder/$1.log" 2>&1 &
  server=$!
  ask || { tail "$folder/$1.log" >&2; exit 1; }
  seconds=$(echo "$(date +%s.%N) $start" | awk '{printf "%.1f", $1 - $2}')
  stop "${3:-}"
  results+=("$1: $seconds s from the start of the installation to an answered chat request")
  awk -v seconds="$seconds" -v limit="$limit_s" 'BEGIN {exit seconds > limit}' || { echo "$1: more than $limit_s s" >&2; exit 1; }
}

# stop [any-status]: ends the server, which must exit with 0 unless any status is allowed.
stop() {
  kill -TERM "$server"
  wait "$server" || [ "${1:-}" = any-status ] || { echo "the server exited with $? after SIGTERM" >&2; exit 1; }
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
  fresh "$1"
  start=$(date +%s.%N)
  inside sh -c 'tar xzf /dist/quire-*.tar.gz --strip-components=1 -C /usr/local'
  answers "tarball${2:-}" quire
  has /usr/local/share/man/man1/quire.1 /usr/local/lib/systemd/system/quire.service /usr/local/share/bash-completion/completions/quire
  finds_c_api /usr/local
  cleanup
}

# test_serve_wheel BASE [SUFFIX]: installs the wheel of the command, and then the wheel of the library next to it if it is made for this
# Python. Both must work, and removing the library must leave the command.
test_serve_wheel() {
  fresh "$1"
  start=$(date +%s.%N)
  inside python3 -m venv /venv
  inside sh -c '/venv/bin/pip install -q --no-index --disable-pip-version-check /dist/quire_serve-*.whl'
  answers "serve wheel${2:-}" /venv/bin/quire
  if inside sh -c '/venv/bin/pip install -q --no-index --disable-pip-version-check --find-links /dist /dist/quire-*.whl' 2>>"$folder/pip.log"; then
    inside /venv/bin/python -m quire --version
    inside /venv/bin/pip uninstall -q -y quire
  else
    ! inside python3 -c 'import sys; sys.exit(sys.version_info[:2] != (3, 11))' || { tail "$folder/pip.log" >&2; exit 1; }
  fi
  inside /venv/bin/quire --version
  inside /venv/bin/pip uninstall -q -y quire-serve
  inside sh -c 'test ! -e /venv/bin/quire && ! ls -d /venv/lib/python3*/site-packages/quire*' 2>/dev/null || { echo "files are left after pip uninstall" >&2; exit 1; }
  cleanup
}

test_wheel() {
  local seconds
  fresh python
  start=$(date +%s.%N)
  inside python3 -m venv /venv
  inside sh -c '/venv/bin/pip install -q --no-index --disable-pip-version-check /dist/quire-*.whl'
  inside sh -c 'cd /venv/lib/python3*/site-packages/quire && test -e py.typed -a -s _core.pyi -a -s _engine.pyi' || { echo "the stubs are missing" >&2; exit 1; }
  inside /venv/bin/python -c 'import quire; engine = quire.Engine("/model.gguf", kv_cache_memory="64MiB", max_model_len=256); print(engine.generate("One, two,", max_tokens=4).text)'
  seconds=$(echo "$(date +%s.%N) $start" | awk '{printf "%.1f", $1 - $2}')
  results+=("wheel: $seconds s from the start of the installation to a generated text")
  inside /venv/bin/python -c 'import quire; core = quire.Core(quire.CoreConfig(num_blocks=8, max_model_len=64)); core.add([1, 2]); print(core.schedule())'
  # Without quire-serve, the library names the package of the command.
  ! inside /venv/bin/python -m quire --version 2>"$folder/no_command.log" || { echo "python -m quire must fail without quire-serve" >&2; exit 1; }
  grep -q 'quire-serve' "$folder/no_command.log" || { cat "$folder/no_command.log" >&2; exit 1; }
  cleanup
}

# Builds deploy/Containerfile with buildah in a chroot, and starts the image's command as the image's user.
test_image() {
  fresh builder
  mkdir "$root/context"
  cp -r "$repo/deploy" "$repo/.dockerignore" "$root/context/"
  cp -r "$repo/dist" "$root/context/dist"
  tar cf "$root/base.tar" -C "$folder/minbase" .
  chmod 644 "$root/model.gguf"
  inside sh -ec 'box=$(buildah from scratch) && buildah add -q $box /base.tar / >/dev/null && buildah commit -q $box docker.io/library/debian:12-slim >/dev/null && rm /base.tar' \
    >"$folder/image.log" 2>&1 || { tail "$folder/image.log" >&2; exit 1; }
  start=$(date +%s.%N)
  inside buildah bud --isolation chroot --pull-never -f deploy/Containerfile -t quire /context >>"$folder/image.log" 2>&1 || { tail "$folder/image.log" >&2; exit 1; }
  inside buildah inspect --type image --format '{{.OCIv1.Config.Entrypoint}} {{.OCIv1.Config.User}}' quire >"$folder/image.config"
  [ "$(cat "$folder/image.config")" = "[quire serve] 10001:10001" ] || { echo "the image's settings: $(cat "$folder/image.config")" >&2; exit 1; }
  inside sh -c 'buildah run --isolation chroot "$(buildah from --pull-never quire)" -- sh -c "test \$(id -u) = 10001 && touch /var/lib/quire/file && ! touch /usr/file"' \
    2>>"$folder/image.log" || { echo "the image's user must be 10001, and may write only to /var/lib/quire" >&2; exit 1; }
  cat >"$root/usr/local/bin/quire-image" <<'EOF'
#!/bin/sh -e
exec buildah run --isolation chroot -v /model.gguf:/model.gguf:ro "$(buildah from --pull-never quire)" -- quire "$@"
EOF
  chmod 755 "$root/usr/local/bin/quire-image"
  answers image quire-image any-status  # buildah exits with 1 after a signal
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
  results+=("service: answered from its sandbox")
}

# wants TEST: returns whether this test was requested.
wants() { [[ " ${QUIRE_TEST_PACKAGES:-$tests} " == *" $1 "* ]]; }

mkdir -p "$folder"
rm -f "$folder/pip.log"
ls -l "$repo"/dist
base minbase bookworm
base python bookworm python3-venv
if wants deb; then test_deb; fi
if wants tarball; then test_tarball minbase; fi
if wants serve; then test_serve_wheel python; fi
if wants wheel; then test_wheel; fi
if wants trixie; then
  if base trixie trixie python3-venv; then
    test_tarball trixie " (Debian 13)"
    test_serve_wheel trixie " (Debian 13)"
  else
    results+=("Debian 13: not tested, because debootstrap cannot make a root: $folder/trixie.log has the reason")
  fi
fi
if wants image; then
  if base builder bookworm buildah crun containernetworking-plugins; then
    test_image
  else
    results+=("image: not tested, because debootstrap cannot make a root with buildah: $folder/builder.log has the reason")
  fi
fi
if wants service; then
  if command -v systemd-nspawn >/dev/null; then
    base system bookworm systemd-sysv dbus
    test_service
  else
    results+=("service: not tested, because systemd-nspawn is not installed (systemd-container)")
  fi
fi
rm -rf "${folder:?}/root"
printf '%s\n' "${results[@]}"
