"""Records the beams that vLLM's beam searches find on a small model, computed in f32 on a CPU.

Needs the environment of ./dev oracle.
Runs both beam searches of vLLM: the search of its OpenAI server (entrypoints/openai/engine/serving.py) and LLM.beam_search. The model and
the prompts are made as in tiny.py, so no weights are stored.
"""
import asyncio
import os
import sys
import tempfile
import types

os.environ.update(HF_HUB_OFFLINE="1", VLLM_CPU_KVCACHE_SPACE="1", VLLM_LOGGING_LEVEL="ERROR", VLLM_ENABLE_V1_MULTIPROCESSING="0",
                  PYTHONHASHSEED="0")

import numpy as np
import tokenizers
import torch
import transformers
import vllm
from vllm.entrypoints.openai.engine.serving import OpenAIServing
from vllm.inputs import tokens_input
from vllm.sampling_params import BeamSearchParams

from . import files, tiny
from .tiny import VOCAB, draw

OUT = "beams.json"
NUM_PROMPTS = 200
MAX_MODEL_LEN = 128
EOS = 206  # likely often enough that some searches end with it
PENALTIES = [0.5, 0.75, 1.0, 1.5, 2.0]


def write_model(folder):
    config = transformers.LlamaConfig(**tiny.SHAPE, num_attention_heads=4, num_key_value_heads=2, tie_word_embeddings=False,
                                      rms_norm_eps=1e-5, bos_token_id=1, eos_token_id=EOS)
    model = transformers.LlamaForCausalLM(config)
    tiny.fill(model, ((name, tiny.tensor(name, "F32", tuple(value.shape), "hf")) for name, value in model.state_dict().items()))
    model.save_pretrained(folder)
    words = tokenizers.Tokenizer(tokenizers.models.WordLevel({f"t{i}": i for i in range(VOCAB)}, unk_token="t0"))
    transformers.PreTrainedTokenizerFast(tokenizer_object=words, eos_token=f"t{EOS}").save_pretrained(folder)
    return tiny.described(config, tiny.KEEP) | dict(eos_token_id=EOS)


def make_cases():
    cases = []
    for i in range(NUM_PROMPTS):
        length, width, outputs, penalty, ignore = (int(word >> np.uint64(32)) for word in draw(f"beam case {i}", 5))
        cases.append(dict(prompt=[int(word % VOCAB) for word in draw(f"beam prompt {i}", 1 + length % (60 if i % 4 else 100))],
                          width=2 + width % 4, max_tokens=4 + outputs % 17, length_penalty=PENALTIES[penalty % len(PENALTIES)],
                          ignore_eos=ignore % 3 == 0))
    return cases


def params_of(case, **more):
    return BeamSearchParams(beam_width=case["width"], max_tokens=case["max_tokens"], ignore_eos=case["ignore_eos"], temperature=0.0,
                            length_penalty=case["length_penalty"], **more)


class Client:
    """Stands in for the engine client of the server's beam search, and generates with an LLM. The requests of all searches run in one
    batch."""

    def __init__(self, llm):
        self.llm = llm
        self.pending = []

    async def generate(self, prompt, params, request_id, **_):
        answer = asyncio.get_running_loop().create_future()
        self.pending.append((prompt, params, answer))
        if len(self.pending) == 1:
            asyncio.create_task(self.flush())
        yield await answer

    async def flush(self):
        for _ in range(100):  # lets every search run until it waits for an answer
            await asyncio.sleep(0)
        pending, self.pending = self.pending, []
        prompts = [dict(prompt_token_ids=prompt["prompt_token_ids"]) for prompt, _, _ in pending]
        outputs = self.llm.generate(prompts, [params for _, params, _ in pending], use_tqdm=False)
        for (_, _, answer), output in zip(pending, outputs):
            answer.set_result(output)


async def search_as_server(llm, cases):
    serving = types.SimpleNamespace(renderer=llm.renderer, engine_client=Client(llm))

    async def search(i, case):
        params = params_of(case, include_stop_str_in_output=True)
        async for output in OpenAIServing.beam_search(serving, tokens_input(case["prompt"]), f"search-{i}", params):
            return [dict(tokens=list(found.token_ids), cum_logprob=found.cumulative_logprob, by_eos=found.finish_reason == "stop")
                    for found in output.outputs]

    return await asyncio.gather(*(search(i, case) for i, case in enumerate(cases)))


def search_as_library(llm, case):
    found = llm.beam_search([dict(prompt_token_ids=case["prompt"])], params_of(case))[0].sequences
    return [dict(tokens=beam.tokens[len(case["prompt"]):], cum_logprob=beam.cum_logprob) for beam in found]


def main(out):
    with tempfile.TemporaryDirectory() as folder:
        config = write_model(folder)
        llm = vllm.LLM(folder, dtype="float32", max_model_len=MAX_MODEL_LEN, enforce_eager=True, max_logprobs=20)
        cases = make_cases()
        for case, found in zip(cases, asyncio.run(search_as_server(llm, cases))):
            case["server"] = found
        num_equal = 0
        for case in cases:
            found = search_as_library(llm, case)
            same = [one["tokens"] for one in found] == [one["tokens"] for one in case["server"]]
            num_equal += same
            if not same:
                case["library"] = found
    record = dict(made_with=f"vLLM {vllm.__version__}, torch {torch.__version__}, float32 on a CPU", config=config,
                  max_model_len=MAX_MODEL_LEN)
    files.write_cases(out, record, cases, separators=(",", ":"))
    ends = [one["by_eos"] for case in cases for one in case["server"]]
    print(f"{len(cases)} prompts, {len(ends)} answers, {sum(ends)} end in EOS; both searches agree on {num_equal}", file=sys.stderr)
