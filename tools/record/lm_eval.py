"""Records the log likelihoods of the items of tests/clients/lm_eval in transformers, with the dequantised weights of the default model.

Needs torch and transformers.
The rule is lm-eval's: a choice follows its context after a space, and both are tokenised as one text. The context alone has N tokens. The
tokens after the first N tokens of the text belong to the choice. The record has, for each item and choice, the sum of the log probabilities
of these tokens, and whether all of them are the most likely tokens.
"""
import json
import pathlib
import sys

import torch
import transformers

from . import files

OUT = "lm_eval.json"
OPTIONS = {"model": ("", "GGUF file of the default model")}


def judged(model, tokenizer, context, choice):
    whole = tokenizer(context + " " + choice, add_special_tokens=False)["input_ids"]
    num_context = len(tokenizer(context, add_special_tokens=False)["input_ids"])
    with torch.no_grad():
        logprobs = torch.log_softmax(model(torch.tensor([whole])).logits[0].double(), dim=-1)
    rows = logprobs[num_context - 1:len(whole) - 1]
    wanted = torch.tensor(whole[num_context:])
    total = rows.gather(1, wanted[:, None]).sum().item()
    return [round(total, 6), bool((rows.argmax(dim=-1) == wanted).all())]


def main(out, model):
    torch.set_num_threads(1)
    path = pathlib.Path(model)
    tokenizer = transformers.AutoTokenizer.from_pretrained(path.parent, gguf_file=path.name)
    model = transformers.AutoModelForCausalLM.from_pretrained(path.parent, gguf_file=path.name, dtype=torch.float32).eval()
    items = [json.loads(line) for line in (files.ROOT / "tests/clients/lm_eval/items.jsonl").read_text().splitlines()]
    judgements = [[judged(model, tokenizer, item["context"], choice) for choice in item["choices"]] for item in items]
    right = [max(range(len(judged)), key=lambda i: judged[i][0]) == item["gold"] for item, judged in zip(items, judgements)]
    record = {"made_with": files.versions(transformers, torch), "model": path.name,
              "acc": sum(right) / len(right), "items": judgements}
    out.write_text(json.dumps(record) + "\n")
    print(record["acc"], file=sys.stderr)
