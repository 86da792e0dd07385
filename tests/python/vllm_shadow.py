"""Tests quire.vllm.ShadowScheduler, driven by hand. Run by vLLM's Python. usage: vllm_shadow.py silent|planted|written"""
import json
import os
import sys
import tempfile
from collections import deque
from pathlib import Path

from oracle import fuzz

fuzz.setup()  # must run before any import of the replaced parts of vLLM

import vllm_offloading as offloading  # noqa: E402
from oracle import compare, config as configs, generate, play, recorded  # noqa: E402
from vllm.utils.hashing import get_hash_fn_by_name  # noqa: E402
from vllm.v1.core.kv_cache_utils import init_none_hash  # noqa: E402
from vllm.v1.outputs import ModelRunnerOutput  # noqa: E402

from quire.vllm import ShadowScheduler, _adapter  # noqa: E402


def drive(shadow, is_async, num_requests):
    """Runs vLLM's real OffloadingConnector under the shadow; the worker is scripted."""
    worker, todo, queue = offloading.Worker(), deque(offloading.requests("sha256", num_requests)), deque()
    step = 0
    while todo or shadow.has_requests():
        if todo and step % 12 == 0:  # about as fast as requests end, because a long queue only takes time
            shadow.add_request(todo.popleft())
        plan, step = shadow.schedule(), step + 1
        queue.append((plan, worker.run(plan), offloading.sampling(plan, shadow, is_async)))
        if len(queue) == (2 if is_async else 1):
            plan, transferred, tokens = queue.popleft()
            ids = list(plan.num_scheduled_tokens)
            shadow.update_from_output(plan, ModelRunnerOutput(req_ids=ids, req_id_to_index={name: i for i, name in enumerate(ids)},
                                                              sampled_token_ids=tokens, kv_connector_output=transferred))  # fmt: skip
    return step

def make(model, is_async):
    return offloading.make(ShadowScheduler, model, is_async, "sha256")

def silent(model):
    for is_async, num_requests in ((False, 500), (True, 100)):
        shadow = make(model, is_async)
        steps = drive(shadow, is_async, num_requests)
        assert shadow.difference is None, shadow.difference
        assert steps - 1 <= shadow.num_steps <= steps, (steps, shadow.num_steps)
        print(f"silent: {num_requests} requests, {shadow.num_steps} steps, async {is_async}")

def replayed(path):
    """Returns the difference that replaying the script finds, or None."""
    script = json.loads(Path(path).read_text(encoding="utf-8"))
    try:
        recorded.RecordedPlayer(script, ("stock", "quire")).play()
    except compare.Difference as difference:
        return difference
    return None

def planted(model):
    """Gives quire's half one batch slot less: the difference is found and recorded, and vLLM continues."""
    whole = _adapter.core_config

    def smaller(scheduler):
        config = whole(scheduler)
        config.max_num_seqs -= 1
        return config

    os.environ["QUIRE_SHADOW_DIR"] = model
    _adapter.core_config = smaller
    shadow = make(model, False)
    drive(shadow, False, 40)
    assert "differs" in shadow.difference, shadow.difference
    assert shadow.get_request_counts() == (0, 0), "vLLM must continue to the end"
    found = replayed(shadow.script)
    call = found.part.partition(":")[0] if found is not None else "nothing"  # the player compares other parts of it, in another order
    assert f": {call}." in shadow.difference, (found, shadow.difference)
    _adapter.core_config = whole
    assert replayed(shadow.script) is None
    print("planted:", shadow.difference)

    os.environ["QUIRE_SHADOW_DIR"] = os.path.join(model, "missing")
    raising = make(model, False)
    raising._quire_scheduler.add_request = None
    drive(raising, False, 5)
    assert "quire raised" in raising.difference and raising.script is None and raising.get_request_counts() == (0, 0)

def written(model):
    """Records runs with all features of the scenarios and replays them."""
    path = os.path.join(model, "run.json")
    configs.SIDES["stock"], stock = (lambda arguments: ShadowScheduler(**arguments)), configs.SIDES["stock"]
    kinds = set()
    for seed in range(300, 330):
        script = generate.script(seed)
        config = script["config"]
        player = play.Player({**script, "events": [event for event in script["events"] if event[0] != "shutdown"]}, ("stock",)).play()
        shadow = player.sides[0].scheduler
        if player.raised is not None:
            continue
        assert shadow.difference is None, (seed, shadow.difference)
        with open(path, "w", encoding="utf-8") as file:
            shadow._journal.write(file)
        configs.SIDES["stock"] = stock
        again = recorded.RecordedPlayer(json.loads(Path(path).read_text(encoding="utf-8")), ("stock", "quire")).play()
        assert again.num_steps == shadow.num_steps + len(shadow._plans), (seed, again.num_steps, shadow.num_steps)
        configs.SIDES["stock"] = lambda arguments: ShadowScheduler(**arguments)
        kinds |= {name for name in ("connector", "ec_connector", "async", "multimodal", "max_loras") if config[name]} | {config["spec"]}
    assert {"connector", "ec_connector", "async", "multimodal", "max_loras", "eagle"} <= kinds, kinds
    print("written:", sorted(kinds))

def main(case):
    init_none_hash(get_hash_fn_by_name("sha256"))
    with tempfile.TemporaryDirectory() as model:
        (Path(model) / "config.json").write_text(json.dumps(offloading.MODEL))
        globals()[case](model)

if __name__ == "__main__":
    main(sys.argv[1])
