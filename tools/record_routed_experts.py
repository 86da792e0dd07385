#!/usr/bin/env python3
"""Records the experts that transformers' routers choose on the small models of record_expert_logits.py and its neighbours.

    python3 -m venv venv && venv/bin/pip install torch==2.10.0 transformers==4.57.6 gguf==0.19.0 numpy
    venv/bin/python tools/record_routed_experts.py    # writes tests/golden/logits/routed_experts.json

With the packages of record_newer_logits.py it records that script's models beside the others.

One case of each model, of floats: [token][layer][expert], as a choice gives them; [] where a layer has none. A router is asked for what it
returns: the experts themselves, or scores of which the best are taken.
"""
import json
import sys

import torch
import transformers

import record_logits

if hasattr(transformers, "NemotronHConfig"):
    import record_newer_logits
    RECORDS = {"newer_": record_newer_logits}
else:
    import record_deepseek_logits
    import record_expert_logits
    import record_gpt_oss_logits
    import record_state_logits
    RECORDS = {"expert_": record_expert_logits, "gpt_oss_": record_gpt_oss_logits, "deepseek_": record_deepseek_logits,
               "state_": record_state_logits}
ROUTERS = ("mlp.gate", "block_sparse_moe.gate", "block_sparse_moe.router", "mlp.router", "feed_forward.gate", "mixer.gate")
PATH = record_logits.OUT / "routed_experts.json"


def experts_of(output, per_token, block):
    """Of each row, whatever a router gives."""
    parts = output if isinstance(output, tuple) else (output, )
    for part in parts:
        if isinstance(part, torch.Tensor) and not part.is_floating_point() and part.shape[-1] == per_token and part.dim() == 2:
            return part.tolist()
    if hasattr(block, "route_tokens_to_experts"):
        return block.route_tokens_to_experts(output)[0].tolist()
    scores = parts[-1].float()
    if hasattr(block, "moe_statics"):
        scores = block.moe_statics(scores.softmax(dim=-1))
    return scores.topk(per_token, dim=-1).indices.tolist()


def routed(model, prompt):
    config = model.config
    per_token = next((getattr(config, key) for key in ("num_experts_per_tok", "moe_k", "moe_topk") if hasattr(config, key)), 0)
    per_token = per_token[0] if isinstance(per_token, list) else per_token
    chosen = [[] for _ in range(config.num_hidden_layers)]
    for name, module in model.named_modules():
        _, layer, rest = [*name.split(".", 3), "", "", ""][1:4]
        if rest in ROUTERS:
            layer, block = int(layer), model.get_submodule(name.rsplit(".", 1)[0])
            module.register_forward_hook(
                lambda _, __, output, layer=layer, block=block: chosen.__setitem__(layer, experts_of(output, per_token, block)))
    with torch.no_grad():
        model(torch.tensor([prompt]))
    for i, kind in reversed(list(enumerate(getattr(config, "layers_block_type", [])))):  # a feed-forward part belongs to the block before
        if kind in ("mlp", "moe"):
            chosen[i - 1] = chosen.pop(i)
    return [[layer[token] if layer else [] for layer in chosen] for token in range(len(prompt))]


def main():
    torch.set_num_threads(1)
    record_logits.logits_of = routed
    prompt = [int(word % record_logits.VOCAB) for word in record_logits.draw("prompt", record_logits.NUM_TOKENS)]
    known = json.loads(PATH.read_text()) if PATH.exists() else dict(made_with="", cases={})
    cases = {name: case for name, case in known["cases"].items() if case["record"] not in RECORDS}
    for record, recorder in RECORDS.items():
        for model_name in sorted(recorder.TYPES["hf"]["F32"]):
            case, experts = recorder.run(model_name, "hf", "F32", prompt)
            if any(layer for layer in experts[0]):
                cases[case["name"]] = dict(record=record, experts=experts)
                print(case["name"], experts[-1], file=sys.stderr)
    lines = ",\n".join(f"{json.dumps(name)}: {json.dumps(case, separators=(',', ':'))}" for name, case in cases.items())
    made_with = "; ".join(dict.fromkeys([*filter(None, known["made_with"].split("; ")), record_logits.VERSIONS]))
    PATH.write_text(f'{{"made_with": "{made_with}", "cases": {{\n{lines}\n}}}}\n')


if __name__ == "__main__":
    main()
