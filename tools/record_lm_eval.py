#!/usr/bin/env python3
"""Records the log likelihoods that transformers gives the items of tests/clients/lm_eval, on the dequantised weights of the default model.

    venv/bin/python tools/record_lm_eval.py MODEL.gguf    # torch, transformers; writes tests/golden/lm_eval.json

As lm-eval has it: a choice follows its context behind a space, both are tokenised as one text, and what counts are the tokens behind those
of the context alone. Per item and choice: the sum of their log probabilities, and whether each is the most likely one.
"""
import json
import pathlib
import sys

import torch
import transformers

ROOT = pathlib.Path(__file__).resolve().parent.parent


def judged(model, tokenizer, context, choice):
    whole = tokenizer(context + " " + choice, add_special_tokens=False)["input_ids"]
    num_context = len(tokenizer(context, add_special_tokens=False)["input_ids"])
    with torch.no_grad():
        logprobs = torch.log_softmax(model(torch.tensor([whole])).logits[0].double(), dim=-1)
    rows = logprobs[num_context - 1:len(whole) - 1]
    wanted = torch.tensor(whole[num_context:])
    total = rows.gather(1, wanted[:, None]).sum().item()
    return [round(total, 6), bool((rows.argmax(dim=-1) == wanted).all())]


def main():
    torch.set_num_threads(1)
    path = pathlib.Path(sys.argv[1])
    tokenizer = transformers.AutoTokenizer.from_pretrained(path.parent, gguf_file=path.name)
    model = transformers.AutoModelForCausalLM.from_pretrained(path.parent, gguf_file=path.name, dtype=torch.float32).eval()
    items = [json.loads(line) for line in (ROOT / "tests/clients/lm_eval/items.jsonl").read_text().splitlines()]
    judgements = [[judged(model, tokenizer, item["context"], choice) for choice in item["choices"]] for item in items]
    right = [max(range(len(judged)), key=lambda i: judged[i][0]) == item["gold"] for item, judged in zip(items, judgements)]
    record = {"made_with": f"transformers {transformers.__version__}, torch {torch.__version__}", "model": path.name,
              "acc": sum(right) / len(right), "items": judgements}
    (ROOT / "tests/golden/lm_eval.json").write_text(json.dumps(record) + "\n")
    print(record["acc"], file=sys.stderr)


if __name__ == "__main__":
    main()
