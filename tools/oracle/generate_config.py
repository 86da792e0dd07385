"""Generates random configurations that vLLM accepts, so small that all requests are preempted and all blocks are evicted."""

import random

from . import generate_grammars
from .profiles import Profile

NO_ANSWERS = {
    "unknown": 0, "async": 0, "sync": 0, "unit": 1, "delay": 0, "params": 0, "stats": 0, "events": 0, "reset": True, "finish": 50, "invalid": 0,
    "encoder": 0, "inspect": 0, "keep": 0,
}


def _group(rng: random.Random, kind: str, size: int, config: dict, profile: Profile) -> dict:
    group = {"kind": kind, "block_size": size}
    if kind == "sliding":
        group["window"] = rng.randint(1, profile.window_blocks * size)
    elif kind == "chunked":
        group["chunk"] = size * rng.randint(1, profile.window_blocks * 4 // 5)
    elif kind == "sink":
        group["sink"] = rng.randint(1, 2)
    elif kind == "mamba":
        group["mode"] = config["mamba_mode"]
        group["spec_blocks"] = config["num_spec_tokens"] if config["spec"] != "none" else 0
    return group


# (weight, kinds of the groups, block sizes as multiples of the hash block; None: one size for all)
LAYOUTS = (
    (40, ("full",)),
    (6, ("mla",)),
    (2, ("sink",)),
    (8, ("sliding",)),
    (5, ("chunked",)),
    (6, ("mamba",)),
    (10, ("full", "sliding")),
    (4, ("full", "full", "sliding")),
    (4, ("full", "sliding", "sliding")),
    (4, ("sliding", "sliding")),
    (4, ("full", "chunked")),
    (9, ("full", "mamba")),
    (3, ("full", "mamba", "mamba")),
    (3, ("full", "sliding", "chunked")),
    (2, ("sliding", "mamba")),
    (3, ("mamba", "sliding")),
    (1, ()),
)


# Features for which quire makes vLLM 0.32.0's decisions.
NEWEST_LAYOUTS = (
    (45, ("full",)),
    (6, ("mla",)),
    (12, ("sliding",)),
    (5, ("chunked",)),
    (12, ("full", "sliding")),
    (4, ("full", "full", "sliding")),
    (4, ("full", "sliding", "sliding")),
    (4, ("sliding", "sliding")),
    (4, ("full", "chunked")),
    (3, ("full", "sliding", "chunked")),
    (1, ()),
)


def _layout(rng: random.Random, config: dict, profile: Profile, newest: bool) -> None:
    layouts = NEWEST_LAYOUTS if newest else LAYOUTS
    kinds = rng.choices([kinds for _, kinds in layouts], [weight for weight, _ in layouts])[0]
    size = rng.choice(profile.block_sizes)
    config["mamba_mode"] = "none"
    if "mamba" in kinds:
        config["mamba_mode"] = rng.choice(("all", "align", "align", "none"))
        if config["mamba_mode"] == "none":
            config["prefix_caching"] = False
        if config["mamba_mode"] == "align":
            config["chunked_prefill"] = True
    if "chunked" in kinds and config["spec"] == "eagle" and config["prefix_caching"]:
        config["spec"] = "ngram"
    if not kinds:
        config["prefix_caching"] = False
    sizes = [size] * len(kinds)
    mixable = not newest and len(kinds) > 1 and "chunked" not in kinds and not ("sliding" in kinds and config["spec"] == "eagle" and config["prefix_caching"])
    if mixable and config["mamba_mode"] != "align" and size <= 4 and rng.random() < 0.3:
        sizes = [size * rng.choice((1, 2, 3)) for _ in kinds]
        sizes[rng.randrange(len(sizes))] = size
    config["groups"] = [_group(rng, kind, size_, config, profile) for kind, size_ in zip(kinds, sizes)]
    if len(kinds) > 2 and kinds[0] == kinds[1]:  # equal specs are in one bucket
        config["groups"][1] = dict(config["groups"][0])
    if config["prefix_caching"] and len(config["groups"]) > 1 and all(g == config["groups"][0] for g in config["groups"]):
        config["groups"].pop()
    config["scheduler_block_size"] = config["cache_block_size"] = size
    if kinds in (("full",), ("mla",)) and rng.random() < 0.08 and not newest:
        config["dcp"], config["pcp"] = rng.choice(((2, 1), (1, 2), (2, 2)))
        config["scheduler_block_size"] = size * config["dcp"] * config["pcp"]


def _limits(rng: random.Random, config: dict, profile: Profile) -> None:
    size = config["scheduler_block_size"]
    config["max_model_len"] = rng.choice(profile.max_model_len)
    longest = -(-config["max_model_len"] // size)
    groups = max(1, len(config["groups"]))
    tight = max(3, int(longest * groups * rng.choice((0.5, 1.0, 1.3, 2.0, 3.0))))
    config["num_blocks"] = profile.num_blocks or 1 + min(120, tight) + sum(group.get("sink", 0) for group in config["groups"])
    if (config["mamba_mode"] != "none" or config["spec"] != "none") and not profile.num_blocks:
        config["num_blocks"] += 2 * config["num_spec_tokens"]
    config["max_num_seqs"] = rng.choice(profile.max_num_seqs)
    config["max_num_batched_tokens"] = rng.choice(profile.max_num_batched_tokens)
    if not config["chunked_prefill"]:
        config["max_num_batched_tokens"] = max(config["max_num_batched_tokens"], config["max_model_len"] if rng.random() < 0.7 else 8)
    config["max_num_scheduled_tokens"] = rng.choice((None, None, None, max(2, config["max_num_batched_tokens"] // 2)))
    config["long_prefill_token_threshold"] = rng.choice((*profile.long_prefill_token_threshold, size))
    config["reserve_full_isl"] = rng.random() < 0.6
    if config["mamba_mode"] == "align":
        config["max_num_batched_tokens"] = max(config["max_num_batched_tokens"], size)
        config["max_num_scheduled_tokens"] = None


def _multimodal(rng: random.Random, config: dict, profile: Profile) -> None:
    config["multimodal"] = rng.random() < 0.3
    config["mm_max_tokens"] = rng.choice((0, *profile.mm_max_tokens)) if config["multimodal"] else 0
    config["encoder_budget"] = rng.choice(profile.encoder_budget)
    config["encoder_cache"] = rng.choice(profile.encoder_cache)
    config["disable_chunked_mm_input"] = rng.random() < 0.3
    config["ec_connector"] = config["multimodal"] and rng.random() < 0.3
    config["answers"]["encoder"] = rng.choice((0, 30, 60))


def _encoder_decoder(rng: random.Random, config: dict, profile: Profile) -> None:
    size = config["scheduler_block_size"]
    config.update(encoder_decoder=True, multimodal=True, prefix_caching=False, connector=None, spec="none", mamba_mode="none")
    config["groups"] = [{"kind": "full", "block_size": size}, {"kind": "cross", "block_size": size}]
    config["mm_max_tokens"] = rng.choice(profile.mm_max_tokens)
    config["dcp"] = config["pcp"] = 1
    config["scheduler_block_size"] = config["cache_block_size"] = size
    config["num_spec_tokens"] = 0


def _connector(rng: random.Random, config: dict) -> None:
    if rng.random() < 0.65:
        config["connector"] = None
        return
    single = len(config["groups"]) == 1
    config["connector"] = rng.choice(("ScriptedConnector", "ScriptedHybridConnector")) if single else "ScriptedHybridConnector"
    config["load_failure"] = rng.choice(("fail", "recompute"))
    loads = config["mamba_mode"] != "align" and config["groups"]
    config["answers"].update(
        {
            "unknown": rng.choice((0, 10, 30)),
            "async": rng.choice((0, 20, 50)) if loads else 0,
            "sync": rng.choice((0, 20, 40)) if loads else 0,
            "unit": rng.choice((1, config["scheduler_block_size"], config["scheduler_block_size"])),
            "delay": rng.choice((0, 30, 80)),
            "params": rng.choice((0, 1)),
            "stats": rng.choice((0, 1, 2)),
            "events": rng.choice((0, 1)),
            "reset": rng.choice((True, False, None)),
            "inspect": rng.randrange(2),
            "keep": rng.random() < 0.7,
            "finish": rng.choice((20, 50, 90)),
            "invalid": rng.choice((0, 0, 20, 50)) if single else 0,
        }
    )


# The following functions produce states that random configurations rarely reach.
def _shared_loads(rng: random.Random, config: dict) -> None:
    """Produces blocks that several requests share while their load fails."""
    if len(config["groups"]) != 1 or config["mamba_mode"] != "none":
        return
    if config["spec"] == "eagle" and config["groups"][0]["kind"] == "chunked":
        return
    config.update(prefix_caching=True, connector="ScriptedHybridConnector", max_num_batched_tokens=200, max_num_seqs=8, reserve_full_isl=False)
    config["load_failure"] = rng.choice(("fail", "recompute"))
    config["num_blocks"] *= 2
    config["docs"] = 1
    config["answers"].update({"sync": 70, "async": rng.choice((0, 20)), "invalid": 90, "unit": config["scheduler_block_size"], "finish": 60})


def _images_under_priority(rng: random.Random, config: dict) -> None:
    """Produces preempted requests that received encoder inputs in the same step."""
    if config["encoder_decoder"] or not config["groups"]:
        return
    config.update(policy="priority", multimodal=True, mm_max_tokens=8, encoder_budget=64, encoder_cache=64, chunked_prefill=True)
    config.update(reserve_full_isl=False, max_num_seqs=8, max_num_batched_tokens=max(24, config["cache_block_size"]), disable_chunked_mm_input=False)
    config["long_prefill_token_threshold"] = 4 if config["mamba_mode"] != "align" else 0
    config["docs"] = 8


def _mixed_sizes(rng: random.Random, config: dict) -> None:
    """Produces groups with block sizes that are not multiples of each other, so that hits are shortened to a common length."""
    if len(config["groups"]) < 2 or config["encoder_decoder"] or config["mamba_mode"] == "align" or config["connector"]:
        return
    if config["spec"] == "eagle" or any(group["kind"] == "chunked" for group in config["groups"]):
        return
    config["prefix_caching"] = True
    if rng.random() < 0.2:
        config["groups"] = [{"kind": "mamba", "mode": "all", "spec_blocks": config["num_spec_tokens"]}, {"kind": "sliding", "window": 1}]
    size = rng.choice((1, 2))
    sizes = rng.sample((1, 2, 3, 4), len(config["groups"]))
    for group, factor in zip(config["groups"], sizes):
        group["block_size"] = size * factor
        if group["kind"] == "mamba":
            group["mode"] = config["mamba_mode"] = "all"
        if "window" in group:
            group["window"] = rng.randint(1, 24)
    config["scheduler_block_size"] = config["cache_block_size"] = size
    config["docs"] = 1


def _newest(rng: random.Random, config: dict) -> None:
    """Removes settings that are refused under vLLM 0.32.0."""
    config.update(ec_connector=False, routed_experts=False, iteration_details=rng.random() < 0.2)
    config["answers"]["encoder"] = 0
    if config["max_num_scheduled_tokens"]:
        config["max_num_scheduled_tokens"] = min(config["max_num_scheduled_tokens"], config["max_num_batched_tokens"])
    has_windows = any(group["kind"] == "sliding" for group in config["groups"])
    config["retention"] = rng.choice((0, 0, 0, None, *((2 * config["scheduler_block_size"], 4 * config["scheduler_block_size"]) if has_windows else ())))
    if config["pp"] > 1 and config["async"]:
        config["v2_runner"] = False
    if config["connector"]:
        config["role"] = rng.choice(("kv_both", "kv_both", "kv_consumer", "kv_producer"))
        config["answers"]["failed"] = rng.choice((0, 0, 20, 50))
    config["watermark"] = rng.choice((0.0, 0.0, 0.05, 0.2))
    config["adaptive_threshold"] = rng.random() < 0.3
    config["max_num_active_seqs"] = rng.choice((None, None, None, max(1, config["max_num_seqs"] // 2)))


def configuration(rng: random.Random, profile: Profile, newest: bool = False) -> dict:
    config = {
        "prefix_caching": rng.random() < 0.8,
        "hash": rng.choice(("sha256", "sha256", "sha256_cbor", "xxhash", "xxhash_cbor")),
        "int_hashes": rng.random() < 0.5,
        "policy": rng.choice(("fcfs", "fcfs", "priority")),
        "async": rng.random() < 0.5,
        "chunked_prefill": rng.random() < 0.8,
        "dcp": 1,
        "pcp": 1,
        "max_loras": rng.choice((0, 0, 0, 1, 2)),
        "kv_events": rng.random() < 0.4,
        "log_stats": rng.random() < 0.7,
        "kv_metrics": rng.choice((0, 0, 0, 0.3, 1.0)),
        "include_finished_set": rng.random() < 0.3,
        "v2_runner": rng.random() < 0.15,
        "routed_experts": rng.random() < 0.05,
        "encoder_decoder": False,
        "load_failure": "fail",
        "reasoning": rng.choice((0, 0, 2)),
        "mfu": rng.random() < 0.1,
        "vocab": rng.choice(profile.vocab),
        "follow": rng.choice((0, 50, 90, 100)),
        "answers": dict(NO_ANSWERS),
        "pp": 1,
        "queue_depth": 1,
        "spec": "none",
        "num_spec_tokens": 0,
    }
    if rng.random() < 0.35:
        config["spec"] = rng.choice(("eagle", "ngram") if newest else ("eagle", "draft_model", "ngram"))
        config["num_spec_tokens"] = rng.randint(1, 4)
    _layout(rng, config, profile, newest)
    _limits(rng, config, profile)
    _multimodal(rng, config, profile)
    _connector(rng, config)
    if rng.random() < 0.06:
        _encoder_decoder(rng, config, profile)
    if rng.random() < profile.corners:
        rng.choice((_shared_loads, _images_under_priority) if newest else (_shared_loads, _images_under_priority, _mixed_sizes, _mixed_sizes))(rng, config)
    if rng.random() < 0.96:  # otherwise vLLM refuses it
        config["disable_chunked_mm_input"] &= config["mm_max_tokens"] <= config["max_num_batched_tokens"]
    if rng.random() < 0.002:
        config["policy"] = "lottery"  # refused
    if config["async"]:
        config["queue_depth"] = 2
    if rng.random() < 0.1 and (config["async"] or config["spec"] == "none"):  # otherwise vLLM schedules negative counts
        config["pp"] = config["queue_depth"] = rng.choice((2, 3, 4))
    if newest:
        _newest(rng, config)
    if profile.guided:
        config["guided"] = generate_grammars.manager(rng)
    if profile.continuum:
        config["policy"] = "continuum"
        config["additional"] = {"quire": {"policy": "continuum"}}
    if config["dcp"] * config["pcp"] > 1 or not config["groups"]:
        config["routed_experts"] = False
    return config
