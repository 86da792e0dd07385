"""Records the experts that transformers' routers choose on the small models of four modules (RECORDS).

With the packages of newer_logits.py, this module adds the models of newer_logits.py to the record.

Each model has one case, with float weights: [token][layer][expert], best expert first; [] for a layer without experts. Some routers return
the chosen experts; for a router that returns scores, the experts with the highest scores are recorded.
"""
import json
import sys

import torch
import transformers

from . import tiny

if hasattr(transformers, "NemotronHConfig"):
    from . import newer_logits
    RECORDS = {"newer_": newer_logits}
else:
    from . import deepseek_logits, expert_logits, gpt_oss_logits, state_logits
    RECORDS = {"expert_": expert_logits, "gpt_oss_": gpt_oss_logits, "deepseek_": deepseek_logits, "state_": state_logits}
ROUTERS = ("mlp.gate", "block_sparse_moe.gate", "block_sparse_moe.router", "mlp.router", "feed_forward.gate", "mixer.gate")
OUT = "logits/routed_experts.json"


def experts_of(output, per_token, block):
    """Returns the experts of each row, from the output of any kind of router."""
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
    for i, kind in reversed(list(enumerate(getattr(config, "layers_block_type", [])))):  # a feed-forward block belongs to the block before it
        if kind in ("mlp", "moe"):
            chosen[i - 1] = chosen.pop(i)
    return [[layer[token] if layer else [] for layer in chosen] for token in range(len(prompt))]


def main(out):
    torch.set_num_threads(1)
    tiny.logits_of = routed
    prompt = tiny.prompt()
    known = json.loads(out.read_text()) if out.exists() else dict(made_with="", cases={})
    cases = {name: case for name, case in known["cases"].items() if case["record"] not in RECORDS}
    for record, recorder in RECORDS.items():
        for model_name in sorted(recorder.TYPES["hf"]["F32"]):
            case, experts = recorder.run(model_name, "hf", "F32", prompt)
            if any(layer for layer in experts[0]):
                cases[case["name"]] = dict(record=record, experts=experts)
                print(case["name"], experts[-1], file=sys.stderr)
    lines = ",\n".join(f"{json.dumps(name)}: {json.dumps(case, separators=(',', ':'))}" for name, case in cases.items())
    made_with = "; ".join(dict.fromkeys([*filter(None, known["made_with"].split("; ")), tiny.VERSIONS]))
    out.write_text(f'{{"made_with": "{made_with}", "cases": {{\n{lines}\n}}}}\n')
