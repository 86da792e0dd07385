#!/usr/bin/env python3
"""Records what transformers predicts on real text with the default model's dequantised weights, and a greedy continuation.

    python3 -m venv venv && venv/bin/pip install torch==2.10.0 transformers==4.57.1 gguf==0.17.1 numpy
    venv/bin/python tools/record_default_model.py MODEL.gguf     # writes tests/golden/default_model/

Text: tests/golden/text/sonnet.txt (Shakespeare, public domain). The text's first NUM_TOKENS tokens run in one pass with f32 weights;
of each position the TOP likeliest tokens are kept: reference.json (token ids, continuation), top_ids.u16 and top_logprobs.f16, both
[position][TOP], likeliest first, natural logarithms.
"""

import json
import pathlib
import sys

import torch
import transformers

ROOT = pathlib.Path(__file__).resolve().parent.parent
NUM_TOKENS = 2000
TOP = 64
PROMPT_TOKENS = 24
NEW_TOKENS = 32


def main():
    path = pathlib.Path(sys.argv[1])
    torch.set_num_threads(2)
    tokenizer = transformers.AutoTokenizer.from_pretrained(path.parent, gguf_file=path.name)
    model = transformers.AutoModelForCausalLM.from_pretrained(path.parent, gguf_file=path.name, dtype=torch.float32).eval()
    ids = tokenizer.encode((ROOT / "tests/golden/text/sonnet.txt").read_text(), add_special_tokens=False)[:NUM_TOKENS]
    with torch.no_grad():
        logprobs = torch.log_softmax(model(torch.tensor([ids])).logits[0].double(), dim=-1)
        prompt = torch.tensor([ids[:PROMPT_TOKENS]])
        continued = model.generate(prompt, attention_mask=torch.ones_like(prompt), do_sample=False, max_new_tokens=NEW_TOKENS,
                                   min_new_tokens=NEW_TOKENS)[0, PROMPT_TOKENS:]
    top = torch.topk(logprobs, TOP, dim=-1)
    out = ROOT / "tests/golden/default_model"
    out.mkdir(parents=True, exist_ok=True)
    top.indices.numpy().astype("<u2").tofile(out / "top_ids.u16")
    top.values.numpy().astype("<f2").tofile(out / "top_logprobs.f16")
    entropy = -(logprobs.exp() * logprobs).sum(-1).mean().item()
    record = dict(made_with=f"transformers {transformers.__version__}, torch {torch.__version__}", model=path.name, top=TOP, tokens=ids,
                  greedy_prompt_tokens=PROMPT_TOKENS, greedy=continued.tolist())
    (out / "reference.json").write_text(json.dumps(record) + "\n")
    print("tokens", len(ids), "mean entropy", entropy, "rest mass", 1 - top.values.exp().sum(-1).mean().item(), file=sys.stderr)
    print(repr(tokenizer.decode(ids[:PROMPT_TOKENS])), "->", repr(tokenizer.decode(continued)), file=sys.stderr)


if __name__ == "__main__":
    main()
