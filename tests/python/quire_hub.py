"""A model hub on loopback that speaks the protocol of huggingface.co, and the host that its downloads are redirected to."""
import contextlib
import hashlib
import http.server
import json
import threading
import urllib.parse

SMALL = 64  # bytes; larger files are in LFS, as most files on the hub


def git_blob_sha1(data):
    return hashlib.sha1(b"blob %d\0" % len(data) + data).hexdigest()


def digest_of(data):
    return hashlib.sha256(data).hexdigest() if len(data) > SMALL else git_blob_sha1(data)


class Repo:
    """The main branch of a repository. `listed` adds entries to its listing, or replaces them."""

    def __init__(self, files, commit="a" * 40, gated=False, listed=()):
        self.files, self.commit, self.gated, self.listed = files, commit, gated, list(listed)

    def entries(self):
        for path, data in sorted(self.files.items()):
            entry = dict(type="file", oid=git_blob_sha1(data), size=len(data), path=path)
            if len(data) > SMALL:
                entry["lfs"] = dict(oid=hashlib.sha256(data).hexdigest(), size=len(data), pointerSize=134)
            yield entry
        yield from self.listed


class Hub:
    """The switches change what the servers answer; tests set them between two calls of quire."""

    def __init__(self, repos):
        self.repos = repos
        self.page_size = 1000
        self.token = None            # the token that private answers need
        self.too_many = []           # values of Retry-After for the next requests, which get status 429
        self.failures = []           # statuses of the next requests
        self.cuts = []               # numbers of bytes after which the next downloads lose their connection
        self.wrong = False           # downloads have another first byte
        self.ignore_range = False
        self.redirect_loop = False
        self.relative_redirect = False
        self.gate = None             # an event that downloads wait for
        self.hold_after = None       # the number of bytes after which downloads wait for the gate
        self.requests = []           # (host, method, path, headers) of each request
        self.lock = threading.Lock()
        self.hub_url = self.cdn_url = None

    def downloads(self):
        return [path for host, method, path, _ in self.requests if host == "cdn" and method == "GET"]

    def take(self, queue):
        with self.lock:
            return queue.pop(0) if queue else None


class Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    hub: Hub
    host: str

    def log_message(self, *_):
        pass

    def do_HEAD(self):
        self.do_GET()

    def do_GET(self):
        self.close_connection = True
        with self.hub.lock:
            self.hub.requests.append((self.host, self.command, self.path, dict(self.headers)))
        path, _, query = self.path.partition("?")
        path = urllib.parse.unquote(path)
        if self.host == "cdn" or path.startswith("/cdn/"):
            return self.send_download(path)
        if (pause := self.hub.take(self.hub.too_many)) is not None:
            return self.reply(429, b"", {"Retry-After": str(pause)})
        if (status := self.hub.take(self.hub.failures)) is not None:
            return self.reply(status, b"an error page", {})
        if self.hub.redirect_loop:
            return self.reply(302, b"", {"Location": self.path})
        return self.route(path, urllib.parse.parse_qs(query))

    def route(self, path, query):
        words = path.strip("/").split("/")
        if words == ["api", "models"]:
            names = [name for name in self.hub.repos if query["search"][0].lower() in name.lower()]
            return self.reply(200, json.dumps([dict(id=name) for name in names]).encode(), {})
        cached = words[:2] == ["api", "resolve-cache"]
        start = 3 if cached else 2 if words[0] == "api" else 0
        repo = self.hub.repos.get("/".join(words[start:start + 2]))
        has_token = self.hub.token is not None and self.headers.get("Authorization") == f"Bearer {self.hub.token}"
        if repo is None or (self.hub.token is not None and not repo.gated and not has_token):
            status = 404 if "Authorization" in self.headers else 401
            return self.reply(status, b'{"error":"Repository not found"}', {"X-Error-Code": "RepoNotFound"})
        rest = words[start + 2:]
        if cached:
            return self.send_small(repo, "/".join(rest[1:]))
        if words[0] != "api":
            return self.resolve(repo, "/".join(words[:2]), "/".join(rest[2:]), has_token)
        if rest[0] == "revision":
            siblings = [dict(rfilename=name) for name in sorted(repo.files)]
            return self.reply(200, json.dumps(dict(id="/".join(words[2:4]), sha=repo.commit, siblings=siblings)).encode(), {})
        return self.send_tree(repo, path, int(query.get("cursor", ["0"])[0]))

    def send_tree(self, repo, path, begin):
        entries = [dict(type="directory", oid="0" * 40, size=0, path="folder"), *repo.entries()]
        end = begin + self.hub.page_size
        more = {"Link": f'<{self.hub.hub_url}{path}?recursive=true&cursor={end}>; rel="next"'} if end < len(entries) else {}
        self.reply(200, json.dumps(entries[begin:end]).encode(), more)

    def resolve(self, repo, name, path, has_token):
        if repo.gated and not has_token:
            status = 403 if "Authorization" in self.headers else 401
            return self.reply(status, b"Access is restricted", {"X-Error-Code": "GatedRepo"})
        data = repo.files.get(path)
        if data is None:
            return self.reply(404, b"", {"X-Error-Code": "EntryNotFound"})
        headers = {"X-Repo-Commit": repo.commit, "ETag": f'"{digest_of(data)}"'}
        if len(data) <= SMALL:
            return self.reply(307, b"", {**headers, "Location": f"/api/resolve-cache/models/{name}/{repo.commit}/{urllib.parse.quote(path)}"})
        target = "" if self.hub.relative_redirect else self.hub.cdn_url
        location = f"{target}/cdn/{name}/{urllib.parse.quote(path)}?signature=a|b"
        self.reply(302, b"", {**headers, "X-Linked-ETag": f'"{digest_of(data)}"', "X-Linked-Size": str(len(data)), "Location": location})

    def send_small(self, repo, path):
        data = repo.files[path]
        self.reply(200, data, {"X-Repo-Commit": repo.commit, "ETag": f'"{digest_of(data)}"'})

    def send_download(self, path):
        if self.hub.gate is not None and self.hub.hold_after is None:
            self.hub.gate.wait(60)
        name, _, file = path.removeprefix("/cdn/").partition("/")
        repo, _, file = file.partition("/")
        data = self.hub.repos[f"{name}/{repo}"].files[file]
        etag = f'"{digest_of(data)}"'
        if self.hub.wrong:
            data = bytes([data[0] ^ 1]) + data[1:]
        begin = 0
        if (asked := self.headers.get("Range")) and not self.hub.ignore_range and self.headers.get("If-Range", etag) == etag:
            begin = int(asked.removeprefix("bytes=").removesuffix("-"))
            if begin >= len(data):
                return self.reply(416, b"", {"Content-Range": f"bytes */{len(data)}"})
        headers = {"Content-Range": f"bytes {begin}-{len(data) - 1}/{len(data)}"} if begin else {}
        self.reply(206 if begin else 200, data[begin:], {**headers, "ETag": etag}, cut=self.hub.hold_after or self.hub.take(self.hub.cuts))
        if self.hub.hold_after is not None:
            self.wfile.flush()
            self.hub.gate.wait(60)

    def reply(self, status, body, headers, cut=None):
        self.send_response(status)
        for name, value in headers.items():
            self.send_header(name, value)
        self.send_header("Content-Length", str(len(body)))
        self.send_header("Connection", "close")
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body if cut is None else body[:cut])


@contextlib.contextmanager
def hub_of(repos, hub_tls=None, cdn_tls=None):
    """Yields a running Hub with the repositories, {"org/name": Repo}. The SSL contexts make a server speak https, as localhost."""
    hub = Hub(repos)
    servers, urls = [], []
    for host, tls in (("hub", hub_tls), ("cdn", cdn_tls)):
        handler = type("HostHandler", (Handler,), dict(hub=hub, host=host))
        server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler)
        server.daemon_threads = True
        if tls is not None:
            server.socket = tls.wrap_socket(server.socket, server_side=True)
        urls.append(f"{'https://localhost' if tls else 'http://127.0.0.1'}:{server.server_address[1]}")
        threading.Thread(target=server.serve_forever, daemon=True).start()
        servers.append(server)
    hub.hub_url, hub.cdn_url = urls
    try:
        yield hub
    finally:
        for server in servers:
            server.shutdown()
            server.server_close()
