#!/usr/bin/env python3
"""Records the hidden rows that transformers gives, those of the small models of tools/record_logits.py and of the default model.

    venv/bin/python tools/record_embeddings.py [MODEL.gguf]    # the same packages; writes tests/golden/embeddings

For each small model in F32, after the final norm, as torch computes them: the last token's row, the first one's, and the mean of all
(rows.f32); and the rows of all tokens (all_rows.f32). With the default model: the rows of the first tokens of the text that
tools/record_default_model.py has recorded (default_rows.f32).
"""
import json
import pathlib
import sys

import numpy as np
import torch
import transformers

import record_logits

OUT = pathlib.Path(__file__).resolve().parent.parent / "tests" / "golden" / "embeddings"
NUM_DEFAULT = 100


def rows_of(model_name, prompt):
    config_class, model_class, options = record_logits.MODELS[model_name]
    config = config_class(**record_logits.SHAPE | options, attn_implementation="eager")
    model = model_class(config).eval()
    state = {name: torch.from_numpy(np.ascontiguousarray(record_logits.tensor(name, "F32", tuple(value.shape), "hf")))
             for name, value in model.state_dict().items() if name != "lm_head.weight" or not config.tie_word_embeddings}
    missing, unexpected = model.load_state_dict(state, strict=False)
    assert not unexpected and all(name == "lm_head.weight" for name in missing), (missing, unexpected)
    model.tie_weights()
    with torch.no_grad():
        hidden = model.model(torch.tensor([prompt])).last_hidden_state[0]
    return torch.stack([hidden[-1], hidden[0], hidden.mean(dim=0)]).numpy(), hidden.numpy()


def record_default(path):
    prompt = json.loads((OUT.parent / "default_model" / "reference.json").read_text())["tokens"][:NUM_DEFAULT]
    model = transformers.AutoModelForCausalLM.from_pretrained(path.parent, gguf_file=path.name, dtype=torch.float32).eval()
    with torch.no_grad():
        hidden = model(torch.tensor([prompt]), output_hidden_states=True).hidden_states[-1][0]
    hidden.numpy().astype("<f4").tofile(OUT / "default_rows.f32")
    print(tuple(hidden.shape), hidden.std().item(), file=sys.stderr)


def main():
    torch.set_num_threads(1)
    prompt = [int(word % record_logits.VOCAB) for word in record_logits.draw("prompt", record_logits.NUM_TOKENS)]
    names = [name for name in record_logits.MODELS if name not in record_logits.ONE_TYPE]
    pairs = [rows_of(name, prompt) for name in names]
    rows, hidden = (np.stack(part).astype("<f4") for part in zip(*pairs))
    assert np.isfinite(rows).all() and np.isfinite(hidden).all()
    OUT.mkdir(parents=True, exist_ok=True)
    made_with = f"transformers {transformers.__version__}, torch {torch.__version__}"
    record = dict(made_with=made_with, kinds=["last", "first", "mean"], cases=[f"{name}_hf_F32" for name in names])
    (OUT / "cases.json").write_text(json.dumps(record, indent=1) + "\n")
    rows.tofile(OUT / "rows.f32")
    hidden.tofile(OUT / "all_rows.f32")
    print(rows.shape, rows.std(), hidden.shape, file=sys.stderr)
    if len(sys.argv) > 1:
        record_default(pathlib.Path(sys.argv[1]))


if __name__ == "__main__":
    main()
