"""Records the predictions of transformers on real text with the default model's dequantised weights, and a greedy continuation.

Needs torch==2.10.0, transformers==4.57.1, gguf==0.17.1 and numpy.

The text is tests/golden/text/sonnet.txt (Shakespeare, public domain). Its first NUM_TOKENS tokens run in one pass with f32 weights. The
record keeps the TOP most likely tokens of each position. reference.json has the token ids of the text and the continuation. top_ids.u16 and
top_logprobs.f16 are arrays [position][TOP], most likely token first, with natural logarithms.
"""
import json
import pathlib
import sys

import torch
import transformers

from . import files

OUT = "default_model"
OPTIONS = {"model": ("", "GGUF file of the default model")}
NUM_TOKENS = 2000
TOP = 64
PROMPT_TOKENS = 24
NEW_TOKENS = 32


def main(out, model):
    path = pathlib.Path(model)
    torch.set_num_threads(2)
    tokenizer = transformers.AutoTokenizer.from_pretrained(path.parent, gguf_file=path.name)
    model = transformers.AutoModelForCausalLM.from_pretrained(path.parent, gguf_file=path.name, dtype=torch.float32).eval()
    ids = tokenizer.encode((files.GOLDEN / "text/sonnet.txt").read_text(), add_special_tokens=False)[:NUM_TOKENS]
    with torch.no_grad():
        logprobs = torch.log_softmax(model(torch.tensor([ids])).logits[0].double(), dim=-1)
        prompt = torch.tensor([ids[:PROMPT_TOKENS]])
        continued = model.generate(prompt, attention_mask=torch.ones_like(prompt), do_sample=False, max_new_tokens=NEW_TOKENS,
                                   min_new_tokens=NEW_TOKENS)[0, PROMPT_TOKENS:]
    top = torch.topk(logprobs, TOP, dim=-1)
    out.mkdir(parents=True, exist_ok=True)
    top.indices.numpy().astype("<u2").tofile(out / "top_ids.u16")
    top.values.numpy().astype("<f2").tofile(out / "top_logprobs.f16")
    entropy = -(logprobs.exp() * logprobs).sum(-1).mean().item()
    record = dict(made_with=files.versions(transformers, torch), model=path.name, top=TOP, tokens=ids,
                  greedy_prompt_tokens=PROMPT_TOKENS, greedy=continued.tolist())
    (out / "reference.json").write_text(json.dumps(record) + "\n")
    print("tokens", len(ids), "mean entropy", entropy, "rest mass", 1 - top.values.exp().sum(-1).mean().item(), file=sys.stderr)
    print(repr(tokenizer.decode(ids[:PROMPT_TOKENS])), "->", repr(tokenizer.decode(continued)), file=sys.stderr)
