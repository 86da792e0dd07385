"""Tests OpenTelemetry spans with a collector that accepts only what the protocol's schema allows."""
import base64
import http.server
import json
import threading
import urllib.request

from google.protobuf import json_format
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

from quire_server import running

TRACE, PARENT = "4bf92f3577b34da6a3ce929d0e0e4736", "00f067aa0ba902b7"


class Collector(http.server.BaseHTTPRequestHandler):
    def do_POST(self):
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        # The protocol writes ids as hexadecimal digits, while protobuf's JSON uses base64.
        for resource in body["resourceSpans"]:
            for scope in resource["scopeSpans"]:
                for span in scope["spans"]:
                    for name in ("traceId", "spanId", "parentSpanId"):
                        span[name] = base64.b64encode(bytes.fromhex(span[name])).decode()
        self.server.taken.append(json_format.ParseDict(body, ExportTraceServiceRequest()))
        self.server.news.set()
        self.send_response(200)
        self.send_header("Content-Length", "2")
        self.end_headers()
        self.wfile.write(b"{}")

    def log_message(self, *arguments):
        pass


def test_collector_reads_the_span_of_a_request():
    collector = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Collector)
    collector.taken, collector.news = [], threading.Event()
    threading.Thread(target=collector.serve_forever, daemon=True).start()
    with running("--otlp-traces-endpoint", f"http://127.0.0.1:{collector.server_port}", "--otlp-service-name", "mine") as url:
        request = urllib.request.Request(url + "/v1/completions", data=json.dumps({"prompt": "One, two,", "max_tokens": 8}).encode(),
                                         headers={"Content-Type": "application/json", "traceparent": f"00-{TRACE}-{PARENT}-01"})
        with urllib.request.urlopen(request, timeout=120) as response:
            usage = json.load(response)["usage"]
        assert collector.news.wait(60), "a span must arrive"
        with urllib.request.urlopen(url + "/metrics", timeout=60) as response:
            assert 'quire:spans_dropped_total{engine="0",model_name="smol"} 0' in response.read().decode()
    collector.shutdown()
    [resource] = collector.taken[0].resource_spans
    assert {a.key: a.value.string_value for a in resource.resource.attributes} == {"service.name": "mine"}
    [span] = resource.scope_spans[0].spans
    assert (span.trace_id.hex(), span.parent_span_id.hex(), span.name) == (TRACE, PARENT, "llm_request")
    attributes = {a.key: getattr(a.value, a.value.WhichOneof("value")) for a in span.attributes}
    assert attributes["gen_ai.usage.prompt_tokens"] == usage["prompt_tokens"]
    assert attributes["gen_ai.usage.completion_tokens"] == usage["completion_tokens"]
    assert 0 <= attributes["gen_ai.latency.time_in_queue"] <= attributes["gen_ai.latency.time_to_first_token"]
    assert attributes["gen_ai.latency.time_to_first_token"] <= attributes["gen_ai.latency.e2e"]
    assert abs((span.end_time_unix_nano - span.start_time_unix_nano) / 1e9 - attributes["gen_ai.latency.e2e"]) < 1e-3
