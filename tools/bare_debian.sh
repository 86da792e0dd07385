#!/usr/bin/env bash
# Runs the README's two commands as a newcomer would: in a fresh, minimal Debian 12 root, on a fresh clone of the committed tree.
#
# Usage (as root): tools/bare_debian.sh ROOT_FOLDER [test|serve|both|ci]
# `ci` is `serve`, then what CI runs. Needs debootstrap. ROOT_FOLDER is made if missing and kept; remove it to start from nothing.
set -euo pipefail
root="${1:?usage: tools/bare_debian.sh ROOT_FOLDER [test|serve|both|ci]}"
what="${2:-both}"
repo=$(git -C "$(dirname "$0")" rev-parse --show-toplevel)

if [ ! -d "$root/usr" ]; then
  debootstrap --variant=minbase --include=git,ca-certificates bookworm "$root"
fi
cp /etc/ssl/certs/ca-certificates.crt "$root/etc/ssl/certs/ca-certificates.crt"
cp /etc/resolv.conf "$root/etc/resolv.conf"
[ -f /etc/apt/apt.conf ] && cp /etc/apt/apt.conf "$root/etc/apt/apt.conf"
cp -r /etc/apt/apt.conf.d/. "$root/etc/apt/apt.conf.d/"
[ -f /etc/pip.conf ] && cp /etc/pip.conf "$root/etc/pip.conf"

mounted=()
cleanup() { for point in "${mounted[@]}"; do umount -l "$point"; done; }
trap cleanup EXIT
for point in proc sys dev; do
  mkdir -p "$root/$point"
  mount --rbind "/$point" "$root/$point"
  mount --make-rslave "$root/$point"
  mounted+=("$root/$point")
done

rm -rf "$root/root/quire"
git clone -q "$repo" "$root/root/quire"
inside() { chroot "$root" /usr/bin/env -i HOME=/root PATH=/usr/sbin:/usr/bin:/sbin:/bin LANG=C.UTF-8 bash -c "cd /root/quire && $1"; }

if [ "$what" != test ]; then
  start=$(date +%s)
  inside './dev serve --port 8123 & server=$!
    for i in $(seq 1800); do
      if [ -n "$(python3 -c "import urllib.request as u; print(u.urlopen(\"http://127.0.0.1:8123/health\").status)" 2>/dev/null)" ]; then break; fi
      kill -0 $server || exit 1
      sleep 1
    done
    python3 - <<EOF
import json, urllib.request
body = {"messages": [{"role": "user", "content": "What is the capital of France?"}], "max_tokens": 24, "temperature": 0}
request = urllib.request.Request("http://127.0.0.1:8123/v1/chat/completions", json.dumps(body).encode(), {"Content-Type": "application/json"})
answer = json.load(urllib.request.urlopen(request))
print("answer:", answer["choices"][0]["message"]["content"])
EOF
    kill -TERM $server; wait $server || true'
  echo "./dev serve, from nothing to an answered chat request: $(($(date +%s) - start)) s"
fi
if [ "$what" != serve ]; then
  start=$(date +%s)
  command='./dev test'
  [ "$what" != ci ] || command=.ci/run
  inside "$command"
  echo "$command: $(($(date +%s) - start)) s"
fi
