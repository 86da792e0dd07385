"""Tests what quire.vllm.Scheduler must refuse, and the error texts. Run by vLLM's Python."""
import copy
import dataclasses
import os
from types import SimpleNamespace

from oracle import config as configs, generate, stage

from vllm.v1.core.sched.output import SchedulerOutput

from quire.vllm import Scheduler, ShadowScheduler


def refused(text: str, change=None, scheduler=Scheduler, **arguments):
    script = generate.script(3)["config"]
    script.update(connector="", ec_connector=False, kv_events=False, mfu=False, routed_experts=False, encoder_decoder=False)
    side = stage.Side("quire", 1, script["answers"])
    stage.enter(side)
    given = {**configs.scheduler_arguments(script, side), **arguments}
    if change:
        change(given)
    try:
        scheduler(**given)
    except (ValueError, NotImplementedError) as error:
        assert text in str(error), f"{error!r} does not contain {text!r}"
        print("refused:", error)
    else:
        raise AssertionError(f"not refused: {text}")


def main():
    os.environ["PYTHONHASHSEED"] = "0"
    with stage.CLOCK:
        configs.prepare(generate.script(3)["config"])
        refused("constructor arguments ['hash_block_size']", hash_block_size=16)
        refused("num_gpu_blocks", lambda given: setattr(given["vllm_config"].cache_config, "num_gpu_blocks", 0))
        refused("Unknown scheduling policy", lambda given: setattr(given["vllm_config"].scheduler_config, "policy", "lottery"))
        refused("prefix_caching_hash_algo='md5'", unknown_hash)
        refused("KV-cache specs of type OddSpec", odd_spec)
        refused("quire.pressure_mark; use one of policy, admission_watermark", own_option("pressure_mark"))
        refused("quire.pressure_high with vLLM's own scheduler", own_option("pressure_high"), scheduler=ShadowScheduler)
        refused("swap moves the blocks", own_option("num_swap_slots"))
        moved = [field.name for field in dataclasses.fields(SchedulerOutput) if "copy" in field.name or "swap" in field.name]
        assert not moved, f"a worker can be told of {moved}: then swap and forks need not be refused"
        refused("num_blocks", lambda given: setattr(given["kv_cache_config"], "num_blocks", 1))


def own_option(name):
    return lambda given: setattr(given["vllm_config"], "additional_config", {"quire": {name: 0.9}})


def unknown_hash(given):
    given["vllm_config"].cache_config.prefix_caching_hash_algo = "md5"
    given["vllm_config"].cache_config.enable_prefix_caching = True


def odd_spec(given):
    class OddSpec(SimpleNamespace):
        pass

    given["kv_cache_config"] = copy.copy(given["kv_cache_config"])
    given["kv_cache_config"].kv_cache_groups = [SimpleNamespace(layer_names=["layer"], kv_cache_spec=OddSpec(block_size=16))]


if __name__ == "__main__":
    main()
