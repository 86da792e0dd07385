#!/usr/bin/env python3
"""Makes the tables of docs/metrics.md from the metrics in SOURCES. Prints them; with --write, writes them into the page. A test compares
the page with this output."""
import pathlib
import re
import sys

REPO = pathlib.Path(__file__).resolve().parents[2]
SOURCES = ("include/quire/engine_metric_table.h", "src/server/operate/metrics.cpp", "src/server/models/models_metrics.cpp")
STRING = r'"((?:[^"\\]|\\.)*)"'
# A row of a table, or a call of header(): name, kind, help, and the old name if the metric has one. Further samples of a metric have no
# help.
METRIC = re.compile(rf'[{{(]{STRING}, k(Counter|Gauge|Histogram),\s*{STRING}(?:,\s*{STRING}|[^"]*\.old_name = {STRING})?')
LABELS = {"vllm:request_success_total": "finished_reason", "vllm:spec_decode_num_accepted_tokens_per_pos_total": "position",
          "quire:http_responses_total": "status", "vllm:lora_requests_info": "max_lora, running_lora_adapters, waiting_lora_adapters",
          "quire:kv_tier_": "tier", "quire:prompt_tokens_missed_total": "cause", "quire:request_wait_seconds_total": "cause",
          "quire:preemptions_by_cause_total": "cause", "quire:model_state": "state"}
# Metrics that exist only with these flags.
ONLY = {"quire:kv_swap_": "--kv-swap, --kv-swap-disk", "vllm:spec_decode_": "--num-speculative-tokens", "vllm:kv_block_": "--kv-cache-metrics",
        "quire:common_prefix_blocks": "--count-common-prefix", "quire:lora": "--enable-lora", "vllm:lora_": "--enable-lora",
        "quire:expert": "--expert-memory", "quire:model_": "--models",
        "quire:kv_tier_": "--kv-disk, --kv-dram, --kv-peers, --kv-share, --kv-remote, --kv-role, --kv-connector"}


def read():
    """Returns (name, kind, help, old name) of each metric, sorted by name."""
    text = "".join((REPO / source).read_text(encoding="utf-8") for source in SOURCES)
    found = METRIC.findall(re.sub(r'"\s*\n\s*"', "", text))
    return sorted((name, kind.lower(), told, first or second) for name, kind, told, first, second in found if told)


def metrics():
    """Yields (name, kind, labels, help, flag) of each metric, sorted by name."""
    for name, kind, told, _ in read():
        labels, flag = (next((value for start, value in table.items() if name.startswith(start)), "") for table in (LABELS, ONLY))
        yield name, kind, labels, told, flag


def table():
    rows = ["| name | kind | labels | |", "|---|---|---|---|"]
    for name, kind, labels, told, flag in metrics():
        label = f"`{labels}`" if labels else ""
        only = f" With {', '.join(f'`{one}`' for one in flag.split(', '))}." if flag else ""
        rows.append(f"| `{name}` | {kind} | {label} | {told.replace('|', '&#124;')}{only} |")
    return "\n".join(rows)


def renamed():
    """Returns (new name, old name) of each metric that is reported under both, sorted by new name."""
    return [(name, old) for name, _, _, old in read() if old]


def renamed_table():
    return "\n".join(["| new name | old name |", "|---|---|", *(f"| `{new}` | `{old}` |" for new, old in renamed())])


def write():
    page = REPO / "docs/metrics.md"
    text, _ = re.subn(r"^\| new name \| old name \|\n(?:\|.*\n)+", lambda _: renamed_table() + "\n", page.read_text(encoding="utf-8"), flags=re.MULTILINE)
    text, count = re.subn(r"^\| name \| kind \|.*\n(?:\|.*\n)+", lambda _: table() + "\n", text, flags=re.MULTILINE)
    if count != 1:
        sys.exit("docs/metrics.md: has no table that begins with '| name | kind |'")
    page.write_text(text, encoding="utf-8")


if __name__ == "__main__":
    if sys.argv[1:] == ["--write"]:
        write()
    elif len(sys.argv) > 1:
        sys.exit("usage: metrics_table.py [--write]")
    else:
        print(table())
