"""Helpers of the tests of quire.vllm.ShadowScheduler with stand-ins for vLLM. Where vLLM's scheduler would run, another quire.vllm.Scheduler does,
so that the two always agree, until a test changes one of them. Importing it installs the stand-ins for the version that the command line gives.
"""

import copy
import logging
import os
import sys
import tempfile

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path[:0] = [os.path.join(HERE, "..", "..", "tools"), HERE]

import oracle_vllm  # noqa: E402

VERSION = sys.argv.pop(1)
oracle_vllm.install(VERSION)

from oracle import config as configs, parties, play, recorded, stage  # noqa: E402
from oracle.requests import RequestMaker  # noqa: E402
from vllm.v1.outputs import ModelRunnerOutput  # noqa: E402

parties.install_once()

import quire.vllm  # noqa: E402

IS_NEWER = VERSION == "0.32.0"


class Stock(quire.vllm.Scheduler):
    """Runs in place of vLLM's scheduler."""


class AsyncStock(Stock):
    pass


oracle_vllm.add_schedulers(Stock, AsyncStock)

from quire.vllm import ShadowScheduler  # noqa: E402
from quire.vllm import _journal, _shadow  # noqa: E402

PLAIN = {
    "prefix_caching": True, "hash": "sha256", "int_hashes": False, "policy": "fcfs", "async": False, "chunked_prefill": True, "dcp": 1,
    "pcp": 1, "max_loras": 0, "kv_events": True, "log_stats": True, "kv_metrics": 0, "include_finished_set": False, "v2_runner": False,
    "routed_experts": False, "encoder_decoder": False, "load_failure": "fail", "reasoning": 0, "mfu": False, "vocab": 16, "follow": 0,
    "answers": {**_journal.NO_ANSWERS, "unit": 1, "reset": True}, "pp": 1, "queue_depth": 1, "spec": "none", "num_spec_tokens": 0,
    "mamba_mode": "none", "groups": [{"kind": "full", "block_size": 4}], "scheduler_block_size": 4, "cache_block_size": 4, "max_model_len": 64,
    "num_blocks": 33, "max_num_seqs": 4, "max_num_batched_tokens": 64, "max_num_scheduled_tokens": None, "long_prefill_token_threshold": 0,
    "reserve_full_isl": True, "multimodal": False, "mm_max_tokens": 0, "encoder_budget": 0, "encoder_cache": 0,
    "disable_chunked_mm_input": False, "ec_connector": False, "connector": "ScriptedHybridConnector",
}  # fmt: skip


class Log(logging.Handler):
    """Collects what the shadow logs."""

    def __init__(self):
        super().__init__()
        self.texts = []
        _shadow.logger.handlers, _shadow.logger.propagate = [self], False
        _shadow.logger.setLevel(logging.INFO)

    def emit(self, record):
        self.texts.append(record.getMessage())

    def take(self):
        texts, self.texts = self.texts, []
        return texts


def stock(arguments):
    return (AsyncStock if arguments["vllm_config"].scheduler_config.async_scheduling else Stock)(**arguments)


def shadowed(script, observer=None):
    """Plays a random script on a shadow."""
    configs.SIDES["stock"] = lambda arguments: ShadowScheduler(**arguments)
    player = play.Player({**script, "events": [event for event in script["events"] if event[0] != "shutdown"]}, ("stock",), observer).play()
    configs.SIDES["stock"] = stock
    return player


def replayed(told):
    return recorded.RecordedPlayer(told, ("stock", "quire")).play()


def make(change=None, **config):
    """Returns a shadow with a plain configuration, driven by the test."""
    config = {**copy.deepcopy(PLAIN), **config}
    side = stage.Side("stock", 1, config["answers"])
    stage.enter(side)
    configs.prepare(config)
    arguments = configs.scheduler_arguments(config, side)
    if change:
        change(arguments)
    side.scheduler = ShadowScheduler(**arguments)
    return side.scheduler


def add(shadow, name, **spec):
    request = RequestMaker({"id": name, "doc": 0, "n": 10, "arrival": 0.0, **spec}, 16, configs.block_hasher(PLAIN)).make()
    shadow.add_request(request)
    return request


def result(plan, token=3):
    names = list(plan.num_scheduled_tokens)
    return ModelRunnerOutput(req_ids=names, req_id_to_index={name: i for i, name in enumerate(names)}, sampled_token_ids=[[token] for _ in names])


def step(shadow, token=3):
    plan = shadow.schedule()
    return shadow.update_from_output(plan, result(plan, token))


def raises(kind, text, call):
    try:
        call()
    except kind as error:
        assert text in str(error), f"{error!r} does not contain {text!r}"
    else:
        raise AssertionError(f"nothing was raised; expected {kind.__name__}: {text}")


def run_cases(cases, are_played=()):
    """Runs the cases of a script. Cases that play scripts take the clock themselves."""
    with tempfile.TemporaryDirectory() as scripts:
        for name, case in cases.items():
            tempfile.tempdir = scripts
            if name in are_played:
                case()
            else:
                with stage.CLOCK:
                    case()
            print(f"{name}: ok", flush=True)
