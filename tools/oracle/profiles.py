"""Sizes of scenarios: tiny ones, in which all requests are preempted and all blocks are evicted, and ones of production size."""

from dataclasses import dataclass, replace

from .generate_grammars import NUM_TOKENS


@dataclass(frozen=True)
class Profile:
    block_sizes: tuple
    num_blocks: int  # 0: a small multiple of what one request needs
    max_model_len: tuple
    max_num_seqs: tuple
    max_num_batched_tokens: tuple
    long_prefill_token_threshold: tuple
    window_blocks: int  # the largest sliding window; chunks are at most 4/5 of it
    mm_max_tokens: tuple
    encoder_budget: tuple
    encoder_cache: tuple
    vocab: tuple
    corners: float  # share of configurations that are changed to reach a rare state
    num_requests: tuple
    docs: tuple  # number of shared prefixes of prompts, drawn per scenario
    burst: tuple  # probability that many requests arrive before the first step, and their share
    rate: tuple  # number of arrivals per round
    num_rounds: tuple  # minimum and maximum
    prompts: tuple  # bounds of the prompts' lengths; a scenario uses one of these lists
    next_input: int  # maximum length of a session's later inputs
    max_tokens: tuple
    guided: bool = False  # vLLM's own StructuredOutputManager with real grammars instead of a scripted one
    continuum: bool = False  # the policy is CONTINUUM: requests are turns of jobs, and time passes between them


DEFAULT = Profile(
    block_sizes=(1, 2, 2, 3, 4, 4, 4, 8, 16),
    num_blocks=0,
    max_model_len=(8, 16, 32, 48, 64, 96),
    max_num_seqs=(1, 2, 3, 4, 8, 16),
    max_num_batched_tokens=(4, 8, 16, 24, 32, 64, 200),
    long_prefill_token_threshold=(0, 0, 0, 3, 8),
    window_blocks=5,
    mm_max_tokens=(4, 8, 8, 16),
    encoder_budget=(0, 4, 8, 16, 32),
    encoder_cache=(0, 8, 16, 24),
    vocab=(2, 5, 16, 64),
    corners=0.15,
    num_requests=(2, 4, 8, 12, 20),
    docs=(3,),
    burst=(0.4, 0.5),
    rate=(0.1, 0.3, 0.6),
    num_rounds=(20, 70),
    prompts=((1.0, 1 / 3),),
    next_input=6,
    max_tokens=(1, 2, 5, 10, 20, 40),
)

PRODUCTION = Profile(
    block_sizes=(16, 16, 16, 32),
    num_blocks=4000,
    max_model_len=(8192,),
    max_num_seqs=(64, 256, 256, 256),
    max_num_batched_tokens=(2048, 8192, 16384),
    long_prefill_token_threshold=(0, 0, 512, 2048),
    window_blocks=256,
    mm_max_tokens=(64, 256, 576),
    encoder_budget=(0, 1024, 4096),
    encoder_cache=(0, 2048, 8192),
    vocab=(64, 1000, 32000),
    corners=0.0,
    num_requests=(192, 256, 256, 256),
    docs=(8, 64, 256),
    burst=(0.8, 0.9),
    rate=(0.9, 1.0),
    num_rounds=(60, 140),
    prompts=((0.08,), (0.05, 0.1, 0.25), (0.05, 0.25, 1.0)),
    next_input=400,
    max_tokens=(1, 128, 256, 256, 512),
)

CONTINUUM = replace(DEFAULT, num_requests=(8, 12, 20, 30), rate=(0.3, 0.6, 0.9), num_rounds=(30, 90), continuum=True)

GRAMMAR = replace(
    DEFAULT,
    max_model_len=(32, 48, 64, 96, 160),
    vocab=(NUM_TOKENS,),
    max_num_seqs=(2, 4, 8, 16),
    num_requests=(4, 8, 12, 20),
    burst=(0.6, 0.5),
    rate=(0.3, 0.6, 0.9),
    num_rounds=(30, 80),
    prompts=((0.8, 1 / 3), (0.5, 0.2)),
    max_tokens=(1, 5, 10, 20, 40, 60),
    guided=True,
)

PROFILES = {"default": DEFAULT, "production": PRODUCTION, "continuum": CONTINUUM, "grammar": GRAMMAR}
