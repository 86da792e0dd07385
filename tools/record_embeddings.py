#!/usr/bin/env python3
"""Records the pooled hidden rows that transformers gives on the small models of tools/record_logits.py.

    venv/bin/python tools/record_embeddings.py    # the same packages; writes tests/golden/embeddings/{cases.json,rows.f32}

For each model in F32: the last token's row, the first one's, and the mean of all, after the final norm, as torch computes them.
"""
import json
import pathlib
import sys

import numpy as np
import torch
import transformers

import record_logits

OUT = pathlib.Path(__file__).resolve().parent.parent / "tests" / "golden" / "embeddings"


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
    return torch.stack([hidden[-1], hidden[0], hidden.mean(dim=0)]).numpy()


def main():
    torch.set_num_threads(1)
    prompt = [int(word % record_logits.VOCAB) for word in record_logits.draw("prompt", record_logits.NUM_TOKENS)]
    names = [name for name in record_logits.MODELS if name not in record_logits.ONE_TYPE]
    rows = np.stack([rows_of(name, prompt) for name in names]).astype("<f4")
    assert np.isfinite(rows).all()
    OUT.mkdir(parents=True, exist_ok=True)
    made_with = f"transformers {transformers.__version__}, torch {torch.__version__}"
    record = dict(made_with=made_with, kinds=["last", "first", "mean"], cases=[f"{name}_hf_F32" for name in names])
    (OUT / "cases.json").write_text(json.dumps(record, indent=1) + "\n")
    rows.tofile(OUT / "rows.f32")
    print(rows.shape, rows.std(), file=sys.stderr)


if __name__ == "__main__":
    main()
