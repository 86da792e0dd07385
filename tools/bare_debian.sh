#!/usr/bin/env bash
# Runs the README's two commands as a new user does: in new, minimal Debian 12 root file systems, on a fresh clone of the committed tree.
# Two kinds of roots exist: `main` has only the suite bookworm main, as debootstrap creates it; `security` also has the security suite, as
# images do. In each root, `./dev serve --kv-disk` answers, is stopped, and gives the same answer again from its disk tier. Each printed
# line begins with the seconds since the start.
#
# Usage (as root): tools/bare_debian.sh FOLDER [test|serve|both|ci] [main|security]
# `ci` is `serve`, then the steps of CI. Without a kind, both kinds run one after the other. Needs debootstrap. FOLDER/main and
# FOLDER/security are created if they do not exist, and kept; remove them to start from scratch (FOLDER/bookworm.tar is the output of
# debootstrap, also kept).
set -euo pipefail
usage="usage: tools/bare_debian.sh FOLDER [test|serve|both|ci] [main|security]"
folder="${1:?$usage}"
what="${2:-both}"
kinds="${3:-main security}"
[[ "$what" =~ ^(test|serve|both|ci)$ && "$kinds" =~ ^(main|security|main security)$ ]] || { echo "$usage" >&2; exit 2; }
repo=$(git -C "$(dirname "$0")" rev-parse --show-toplevel)

# make_root KIND: creates a root file system like a new user's, with this machine's network settings.
make_root() {
  local root="$folder/$1"
  if [ ! -d "$root/usr" ]; then
    if [ ! -f "$folder/bookworm.tar" ]; then
      mkdir -p "$folder"
      debootstrap --variant=minbase --include=git,ca-certificates bookworm "$folder/new"
      tar cf "$folder/bookworm.part" -C "$folder/new" .
      mv "$folder/bookworm.part" "$folder/bookworm.tar"
      rm -rf "$folder/new"
    fi
    mkdir -p "$root"
    tar xf "$folder/bookworm.tar" -C "$root"
  fi
  if [ "$1" = security ]; then
    echo "deb http://deb.debian.org/debian-security bookworm-security main" >"$root/etc/apt/sources.list.d/security.list"
  fi
  cp /etc/ssl/certs/ca-certificates.crt "$root/etc/ssl/certs/ca-certificates.crt"
  cp /etc/resolv.conf "$root/etc/resolv.conf"
  echo "127.0.0.1 localhost" >"$root/etc/hosts"  # machines and containers have this file; debootstrap does not write it
  if [ -f /etc/apt/apt.conf ]; then cp /etc/apt/apt.conf "$root/etc/apt/apt.conf"; fi
  cp -r /etc/apt/apt.conf.d/. "$root/etc/apt/apt.conf.d/"
  if [ -f /etc/pip.conf ]; then cp /etc/pip.conf "$root/etc/pip.conf"; fi
  rm -rf "$root/root/quire" "$root/root/kv"
  git clone -q "$repo" "$root/root/quire"
}

# inside ROOT SCRIPT: runs the script in separate mount and process namespaces, so that all its processes end with it.
inside() {
  unshare --mount --propagation private --pid --fork --kill-child bash -c '
    mount -t proc proc "$1/proc" && mount --rbind /sys "$1/sys" && mount --rbind /dev "$1/dev" &&
    exec chroot "$1" /usr/bin/env -i HOME=/root PATH=/usr/sbin:/usr/bin:/sbin:/bin LANG=C.UTF-8 ${JOBS:+JOBS="$JOBS"} bash -c "cd /root/quire && { $2
}"' bash "$1" "$2" 2>&1 | with_seconds
}

with_seconds() {
  local start=$SECONDS line
  while IFS= read -r line || [ -n "$line" ]; do printf '%5d s  %s\n' $((SECONDS - start)) "$line"; done
}

# Starts a server, asks a question and stops the server, twice: the second server must give the same answer from blocks on disk.
readonly SERVE_TWICE='
    serve() {
      ./dev serve --port 8123 --kv-disk /root/kv --kv-disk-budget 256MiB </dev/null & server=$!
      until python3 -c "import urllib.request as u; u.urlopen(\"http://127.0.0.1:8123/health\")" 2>/dev/null; do
        kill -0 $server || { echo "./dev serve ended"; exit 1; }
        sleep 0.2
      done
      python3 -c "$ask"
      kill -TERM $server
      wait $server || { echo "SIGTERM: status $?"; exit 1; }
    }
    ask="
import json, urllib.request
text = \"What is the capital of France? \" + \"It lies on a river that also flows through Rouen. \" * 12
body = {\"messages\": [{\"role\": \"user\", \"content\": text}], \"max_tokens\": 24, \"temperature\": 0}
request = urllib.request.Request(\"http://127.0.0.1:8123/v1/chat/completions\", json.dumps(body).encode(), {\"Content-Type\": \"application/json\"})
answer = json.load(urllib.request.urlopen(request))
print(\"answer:\", answer[\"choices\"][0][\"message\"][\"content\"])
print(\"cached tokens:\", answer[\"usage\"][\"prompt_tokens_details\"][\"cached_tokens\"], \"of\", answer[\"usage\"][\"prompt_tokens\"], flush=True)
"
    serve
    serve
    echo "the server has ended"'

for kind in $kinds; do
  make_root "$kind"
  echo "== $kind: $(. "$folder/$kind/etc/os-release"; echo "$PRETTY_NAME")"
  if [ "$what" != test ]; then
    inside "$folder/$kind" "$SERVE_TWICE" | tee "$folder/$kind.log"
    mapfile -t answers < <(sed -n 's/^ *[0-9]* s  answer: //p' "$folder/$kind.log")
    cached=$(sed -n 's/^ *[0-9]* s  cached tokens: \([0-9]*\) .*/\1/p' "$folder/$kind.log" | tail -n 1)
    [ ${#answers[@]} = 2 ] && [ "${answers[0]}" = "${answers[1]}" ] || { echo "$kind: the answers after and before the restart differ" >&2; exit 1; }
    [ "$cached" -gt 0 ] || { echo "$kind: the answer after the restart was not warm" >&2; exit 1; }
  fi
  if [ "$what" != serve ]; then
    if [ "$what" = ci ]; then inside "$folder/$kind" .ci/run; else inside "$folder/$kind" './dev test'; fi
  fi
done
