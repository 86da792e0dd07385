"""What the options of the tiers must be, and what the log is told of it: the same for all versions of vLLM."""

import importlib
import time

from vllm.logger import init_logger

SAFE_HASHES = ("sha256", "sha256_cbor")
REPORT_S = 10.0  # how often the log is told at most
TROUBLE = {
    "num_refused": "bytes that did not verify were dropped; what is lost is computed again",
    "num_failed": "the disk failed or took too long",
    "loads_left_out": "the disk is left out for loads until it answers again",
    "stores_left_out": "the disk is left out for stores until it answers again",
}

logger = init_logger("vllm.quire")  # below vLLM's own logger, which has the handlers


def policy_of(name: str):
    """What quire.OffloadManager takes for it: a name, or "module:Class", a quire.connectors.EvictionPolicy of your own."""
    if ":" not in name:
        return name
    module, _, own = name.partition(":")
    return getattr(importlib.import_module(module), own)()


def check_disk_options(extra, num_blocks, policy):
    budget, path = extra.get("disk_bytes_to_use"), extra.get("disk_path")
    if not isinstance(path, str) or not path:
        raise ValueError("disk_path: give a folder's name")
    if not isinstance(budget, int) or isinstance(budget, bool) or budget <= 0:
        raise ValueError(f"disk_bytes_to_use: {budget!r} is no number of bytes; give how many the folder may take in all")
    if num_blocks == 0:
        raise ValueError("cpu_bytes_to_use: it has no room for a block; blocks pass through it on their way to disk, so give more")
    if ":" in policy:
        raise ValueError("eviction_policy: one of your own does not go with disk_path; give lru, arc, arc_paper or s3fifo")


def check_names(vllm_config):
    algorithm = vllm_config.cache_config.prefix_caching_hash_algo
    if algorithm not in SAFE_HASHES:
        raise ValueError(f"disk_path: names by {algorithm} can be forged; set --prefix-caching-hash-algo sha256")
    if vllm_config.lora_config is not None:
        raise ValueError("disk_path: an adapter's name does not say which weights it has; leave out disk_path, or --enable-lora")


def opened_or_none(open_tiers):
    """None, and a line in the log, where the folder cannot be had: the engine runs without it."""
    try:
        return open_tiers()
    except (ValueError, NotImplementedError) as error:
        text = str(error).replace("folder: ", "disk_path: ", 1).replace("budget_bytes: ", "disk_bytes_to_use: ", 1)
        logger.error("KV blocks are not kept on disk: %s", text)
        return None


class Reporter:
    """Tells the log what went wrong since the last time."""

    def __init__(self):
        self._told, self._next = {}, 0.0

    def report(self, native):
        if time.monotonic() < self._next:
            return
        self._next = time.monotonic() + REPORT_S
        stats = native.stats()
        for name, text in TROUBLE.items():
            if stats[name] > self._told.get(name, 0):
                logger.warning("KV blocks on disk: %s (%d so far, %d blocks held)", text, stats[name], stats["num_held"])
        self._told = stats
