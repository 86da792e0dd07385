"""Records the logits that peft gives with LoRA adapters on small models.

Needs peft==0.21.2 and the packages that tiny.py names.

Uses the models, prompt and format of tiny.py and state_logits.py. No adapter is stored: the weights of its tensors are drawn from their
names, like the weights of the models. The record has the names and shapes that peft would write, and the config of the adapter.
"""
import peft
import torch
import transformers

from . import deepseek_logits, expert_logits, files, logits, state_logits, tiny

QKV = ["q_proj", "k_proj", "v_proj"]
ATTENTION = [*QKV, "o_proj"]
LINEAR = [*ATTENTION, "gate_proj", "up_proj", "down_proj"]
# (model, container, type, the adapter's options)
CASES = [
    ("llama", "hf", "F32", dict(r=8, lora_alpha=16, target_modules=LINEAR)),
    ("llama", "gguf", "F32", dict(r=8, lora_alpha=16, target_modules=LINEAR)),
    ("llama", "gguf", "mixed", dict(r=16, lora_alpha=16, target_modules=LINEAR)),
    ("llama_scaled", "hf", "F32", dict(r=4, lora_alpha=8, target_modules=["q_proj", "down_proj"], use_rslora=True)),
    ("llama", "hf", "F32", dict(r=5, lora_alpha=10, target_modules=[*LINEAR, "embed_tokens", "lm_head"])),
    ("qwen2", "hf", "BF16", dict(r=8, lora_alpha=8, target_modules=LINEAR)),
    ("qwen3", "gguf", "Q8_0", dict(r=20, lora_alpha=40, target_modules=ATTENTION)),
    ("phi3", "hf", "F32", dict(r=8, lora_alpha=16, target_modules=["qkv_proj", "o_proj", "gate_up_proj", "down_proj"])),
    ("granite", "gguf", "F32", dict(r=8, lora_alpha=4, target_modules=[*LINEAR, "embed_tokens", "lm_head"])),
    ("smollm3", "gguf", "F32", dict(r=1, lora_alpha=3, target_modules=LINEAR)),
    ("olmo2", "hf", "F32", dict(r=8, lora_alpha=16, target_modules=LINEAR, rank_pattern={"q_proj": 3, "layers.1.mlp.up_proj": 32},
                                alpha_pattern={"q_proj": 7, "layers.0.self_attn.v_proj": 1})),
    # Models in which some layers have states
    ("lfm2", "hf", "F32", dict(r=8, lora_alpha=16, target_modules=[*QKV, "in_proj", "out_proj", "w1", "w2", "w3"])),
    ("lfm2", "gguf", "Q8_0", dict(r=4, lora_alpha=8, target_modules=["in_proj", "w2"])),
    ("granite4", "hf", "F32", dict(r=8, lora_alpha=16, target_modules=[*ATTENTION, "in_proj", "out_proj", "input_linear", "output_linear"])),
    ("granite4", "gguf", "F32", dict(r=8, lora_alpha=4, target_modules=[*ATTENTION, "in_proj", "out_proj", "input_linear", "lm_head"])),
    ("bamba", "hf", "F32", dict(r=8, lora_alpha=16, target_modules=[*LINEAR, "in_proj", "out_proj"])),
    # Without out_proj, which peft does not adapt in this model
    ("falcon_h1", "hf", "F32", dict(r=8, lora_alpha=16, target_modules=[*LINEAR, "in_proj", "embed_tokens", "lm_head"])),
    ("qwen3_next", "hf", "F32", dict(r=8, lora_alpha=16, target_modules=[*ATTENTION, "in_proj_qkvz", "in_proj_ba", "out_proj"])),
    # Each expert has a separate adapter, and so has the shared expert, which all tokens use.
    ("mixtral", "hf", "F32", dict(r=4, lora_alpha=8, target_modules=["q_proj", "w1", "w2", "w3"])),
    ("qwen2_moe", "hf", "F32", dict(r=8, lora_alpha=16, target_modules=LINEAR)),
    ("qwen3_moe", "gguf", "F32", dict(r=3, lora_alpha=6, target_modules=["up_proj", "down_proj"])),
    ("deepseek_v3", "hf", "F32", dict(r=4, lora_alpha=4, target_modules=["gate_proj", "up_proj", "down_proj"])),
]
KEPT = ("peft_type", "r", "lora_alpha", "use_rslora", "rank_pattern", "alpha_pattern", "bias", "use_dora", "fan_in_fan_out",
        "modules_to_save", "target_modules")


def load(model_name, container, kind):
    recorder = next((r for r in (expert_logits, deepseek_logits) if model_name in r.MODELS), None)
    if recorder is None:
        return logits.load(model_name, container, kind)
    logits_of, tiny.logits_of = tiny.logits_of, lambda model, prompt: model
    try:
        return recorder.run(model_name, container, kind, None)
    finally:
        tiny.logits_of = logits_of


def run(number, model_name, container, kind, options, prompt):
    load_case = state_logits.load if model_name in state_logits.MODELS else load
    case, model = load_case(model_name, container, kind)
    model = peft.get_peft_model(model, peft.LoraConfig(task_type="CAUSAL_LM", **options)).eval()
    state = peft.get_peft_model_state_dict(model, save_embedding_layers=False)
    drawn = {name: torch.from_numpy(tiny.floats(name, "F32", value.numel()).reshape(tuple(value.shape))) for name, value in state.items()}
    loaded = peft.set_peft_model_state_dict(model, drawn)
    assert not loaded.unexpected_keys, loaded.unexpected_keys
    config = {key: value for key, value in model.peft_config["default"].to_dict().items() if key in KEPT}
    config["target_modules"] = sorted(config["target_modules"])
    config["peft_type"] = str(getattr(config["peft_type"], "value", config["peft_type"]))
    case["name"] = f"{number}_{case['name']}"
    case["adapter"] = dict(config=config, tensors=[[name, list(value.shape)] for name, value in state.items()])
    return case, tiny.logits_of(model, prompt)


OUT, OPTIONS = tiny.OUT, tiny.OPTIONS


def main(out, all_cases):
    cases = {f"{number}_{'_'.join(given[:3])}": (number, *given) for number, given in enumerate(CASES)}
    tiny.record_all(out, "adapter_", cases, run, all_cases, made_with=files.versions(peft, transformers, torch))
