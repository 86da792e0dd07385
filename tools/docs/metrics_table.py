#!/usr/bin/env python3
"""The table of docs/metrics.md, from what src/server/operate says of each metric. `metrics_table.py` prints it; a test compares."""
import pathlib
import re

REPO = pathlib.Path(__file__).resolve().parents[2]
STRING = r'"((?:[^"\\]|\\.)*)"'
CALLS = re.compile(rf'out\.(?P<kind>gauge|counter|histogram)\(\s*{STRING},\s*{STRING}')
HEADERS = re.compile(rf'out\.header\(\s*(?:{STRING}|(?P<constant>k\w+)),\s*"(?P<kind>\w+)",\s*{STRING}')
CAUSES = re.compile(rf'write_by_cause<\w+>\(out,\s*{STRING},\s*{STRING}')
CONSTANTS = re.compile(rf"constexpr const char\* (k\w+) = {STRING};")
TIERS = re.compile(rf"\{{{STRING}, k(Counter|Gauge), {STRING}")
LABELS = {"vllm:request_success_total": "finished_reason", "vllm:spec_decode_num_accepted_tokens_per_pos_total": "position",
          "quire:http_responses_total": "status", "vllm:lora_requests_info": "max_lora, running_lora_adapters, waiting_lora_adapters"}
# Where a metric is only there on some servers.
ONLY = {"quire:kv_swap_": "--kv-swap", "vllm:spec_decode_": "--num-speculative-tokens", "vllm:kv_block_": "--kv-cache-metrics",
        "quire:common_prefix_blocks": "--count-common-prefix", "quire:lora": "--enable-lora", "vllm:lora_": "--enable-lora",
        "quire:expert": "--expert-memory",
        "quire:kv_tier_": "--kv-disk, --kv-dram, --kv-peers, --kv-share, --kv-remote, --kv-role, --kv-connector"}


def metrics():
    """(name, kind, labels, help, flag) of each, by name."""
    text = (REPO / "src/server/operate/metrics.cpp").read_text(encoding="utf-8")
    text = re.sub(r'"\s*\n\s*"', "", text)
    constants = dict(CONSTANTS.findall(text))
    found = [(match[2], match["kind"], "", match[3]) for match in CALLS.finditer(text)]
    found += [(match[1] or constants[match["constant"]], match["kind"], "", match[4]) for match in HEADERS.finditer(text)]
    found += [(match[1], "counter", "cause", match[2]) for match in CAUSES.finditer(text)]
    fields = (REPO / "src/server/operate/tier_fields.cpp").read_text(encoding="utf-8")
    found += [(f"quire:kv_tier_{name}{'_total' if kind == 'Counter' else ''}", kind.lower(), "tier", told)
              for name, kind, told in TIERS.findall(re.sub(r'"\s*\n\s*"', "", fields))]
    for name, kind, labels, told in sorted(found):
        flag = next((flag for start, flag in ONLY.items() if name.startswith(start)), "")
        yield name, kind, labels or LABELS.get(name, ""), told, flag


def table():
    rows = ["| name | kind | labels | |", "|---|---|---|---|"]
    for name, kind, labels, told, flag in metrics():
        label = f"`{labels}`" if labels else ""
        only = f" With {', '.join(f'`{one}`' for one in flag.split(', '))}." if flag else ""
        rows.append(f"| `{name}` | {kind} | {label} | {told.replace('|', '&#124;')}{only} |")
    return "\n".join(rows)


if __name__ == "__main__":
    print(table())
