"""Checks the options of the tiers and logs problems of the disk. The same for all versions of vLLM."""

import importlib
import time

from vllm.logger import init_logger

SAFE_HASHES = ("sha256", "sha256_cbor")
REPORT_PERIOD_S = 10.0  # minimum time between two reports in the log
DISK_PROBLEMS = {
    "num_refused": "blocks that failed verification were dropped; they are computed again",
    "num_failed": "the disk failed or took too long",
    "loads_left_out": "no blocks are loaded from the disk until it responds again",
    "stores_left_out": "no blocks are stored on the disk until it responds again",
}

logger = init_logger("vllm.quire")  # child of vLLM's logger, which has the handlers


def policy_of(name: str):
    """Returns the argument for quire.OffloadManager: the name, or for "module:Class" an instance of a user's
    quire.connectors.EvictionPolicy.
    """
    if ":" not in name:
        return name
    module, _, own = name.partition(":")
    return getattr(importlib.import_module(module), own)()


def check_disk_options(extra, num_blocks, policy):
    budget, path = extra.get("disk_bytes_to_use"), extra.get("disk_path")
    if not isinstance(path, str) or not path:
        raise ValueError("disk_path: must be the path of a folder")
    if not isinstance(budget, int) or isinstance(budget, bool) or budget <= 0:
        raise ValueError(f"disk_bytes_to_use: {budget!r} is not a number of bytes; set the maximum size of the folder")
    if num_blocks == 0:
        raise ValueError("cpu_bytes_to_use: is smaller than one block; blocks pass through host memory on their way to disk, so use a larger value")
    if ":" in policy:
        raise ValueError("eviction_policy: a custom policy cannot be combined with disk_path; use lru, arc, arc_paper or s3fifo")


def check_hash_algorithm(vllm_config):
    algorithm = vllm_config.cache_config.prefix_caching_hash_algo
    if algorithm not in SAFE_HASHES:
        raise ValueError(f"disk_path: block hashes by {algorithm} can be forged; set --prefix-caching-hash-algo sha256")
    if vllm_config.lora_config is not None:
        raise ValueError("disk_path: the name of a LoRA adapter does not identify its weights; leave out disk_path or --enable-lora")


def opened_or_none(open_tiers):
    """Opens the tiers. If the folder cannot be used, logs an error and returns None: the engine runs without the folder."""
    try:
        return open_tiers()
    except (ValueError, NotImplementedError) as error:
        text = str(error).replace("folder: ", "disk_path: ", 1).replace("budget_bytes: ", "disk_bytes_to_use: ", 1)
        logger.error("KV blocks are not stored on disk: %s", text)
        return None


class DiskProblemLogger:
    """Logs the problems that occurred since the last report."""

    def __init__(self):
        self._last_stats, self._next = {}, 0.0

    def report(self, native):
        if time.monotonic() < self._next:
            return
        self._next = time.monotonic() + REPORT_PERIOD_S
        stats = native.stats()
        for name, text in DISK_PROBLEMS.items():
            if stats[name] > self._last_stats.get(name, 0):
                logger.warning("KV blocks on disk: %s (%d so far, %d blocks held)", text, stats[name], stats["num_held"])
        self._last_stats = stats
