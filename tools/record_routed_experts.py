#!/usr/bin/env python3
"""Records the experts that transformers' routers choose on the small models of record_expert_logits.py and its neighbours.

    python3 -m venv venv && venv/bin/pip install torch==2.10.0 transformers==4.57.6 gguf==0.19.0 numpy
    venv/bin/python tools/record_routed_experts.py    # writes tests/golden/logits/routed_experts.json

One case of each model, of floats: [token][layer][expert], as a choice gives them; [] where a layer has none. A router is asked for what it
returns: the experts themselves, or scores of which the best are taken.
"""
import json
import sys

import torch
import transformers

import record_deepseek_logits
import record_expert_logits
import record_gpt_oss_logits
import record_logits
import record_state_logits

RECORDS = {"expert_": record_expert_logits, "gpt_oss_": record_gpt_oss_logits, "deepseek_": record_deepseek_logits,
           "state_": record_state_logits}
ROUTERS = ("mlp.gate", "block_sparse_moe.gate", "block_sparse_moe.router", "mlp.router")


def experts_of(output, per_token):
    """Of each row, whatever a router gives."""
    parts = output if isinstance(output, tuple) else (output, )
    for part in parts:
        if isinstance(part, torch.Tensor) and not part.is_floating_point() and part.shape[-1] == per_token and part.dim() == 2:
            return part.tolist()
    return parts[-1].float().topk(per_token, dim=-1).indices.tolist()


def routed(model, prompt):
    config = model.config
    per_token, chosen = config.num_experts_per_tok, [[] for _ in range(config.num_hidden_layers)]
    for name, module in model.named_modules():
        if name.startswith("model.layers.") and name.split(".", 3)[3] in ROUTERS:
            layer = int(name.split(".")[2])
            module.register_forward_hook(lambda _, __, output, layer=layer: chosen.__setitem__(layer, experts_of(output, per_token)))
    with torch.no_grad():
        model(torch.tensor([prompt]))
    return [[layer[token] if layer else [] for layer in chosen] for token in range(len(prompt))]


def main():
    torch.set_num_threads(1)
    record_logits.logits_of = routed
    prompt = [int(word % record_logits.VOCAB) for word in record_logits.draw("prompt", record_logits.NUM_TOKENS)]
    cases = {}
    for record, recorder in RECORDS.items():
        for model_name in sorted(recorder.TYPES["hf"]["F32"]):
            case, experts = recorder.run(model_name, "hf", "F32", prompt)
            if any(layer for layer in experts[0]):
                cases[case["name"]] = dict(record=record, experts=experts)
                print(case["name"], experts[-1], file=sys.stderr)
    lines = ",\n".join(f"{json.dumps(name)}: {json.dumps(case, separators=(',', ':'))}" for name, case in cases.items())
    made_with = f"transformers {transformers.__version__}, torch {torch.__version__}"
    (record_logits.OUT / "routed_experts.json").write_text(f'{{"made_with": "{made_with}", "cases": {{\n{lines}\n}}}}\n')


if __name__ == "__main__":
    main()
