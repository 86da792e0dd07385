"""Records the hidden rows that transformers gives for the small models of logits.py and for the default model.

The rows are taken after the final norm, as torch computes them. rows.f32 has, for each small model in F32, the row of the last token, the row
of the first token, and the mean of all rows. all_rows.f32 has the rows of all tokens. default_rows.f32 has the rows of the default model for
the first tokens of the text that default_model.py has recorded.
"""
import json
import pathlib
import sys

import numpy as np
import torch
import transformers

from . import files, logits, tiny

OUT = "embeddings"
OPTIONS = {"model": (None, "GGUF file of the default model; without it default_rows.f32 stays unchanged")}
NUM_DEFAULT = 100


def rows_of(model_name, prompt):
    config_class, model_class, options = logits.MODELS[model_name]
    config = config_class(**tiny.SHAPE | options, attn_implementation="eager")
    model = model_class(config).eval()
    tiny.fill(model, ((name, tiny.tensor(name, "F32", tuple(value.shape), "hf")) for name, value in tiny.tensors_of(model)))
    with torch.no_grad():
        hidden = model.model(torch.tensor([prompt])).last_hidden_state[0]
    return torch.stack([hidden[-1], hidden[0], hidden.mean(dim=0)]).numpy(), hidden.numpy()


def record_default(out, path):
    prompt = json.loads((files.GOLDEN / "default_model" / "reference.json").read_text())["tokens"][:NUM_DEFAULT]
    model = transformers.AutoModelForCausalLM.from_pretrained(path.parent, gguf_file=path.name, dtype=torch.float32).eval()
    with torch.no_grad():
        hidden = model(torch.tensor([prompt]), output_hidden_states=True).hidden_states[-1][0]
    hidden.numpy().astype("<f4").tofile(out / "default_rows.f32")
    print(tuple(hidden.shape), hidden.std().item(), file=sys.stderr)


def main(out, model):
    torch.set_num_threads(1)
    prompt = tiny.prompt()
    names = [name for name in logits.MODELS if name not in logits.ONE_TYPE]
    pairs = [rows_of(name, prompt) for name in names]
    rows, hidden = (np.stack(part).astype("<f4") for part in zip(*pairs))
    assert np.isfinite(rows).all() and np.isfinite(hidden).all()
    out.mkdir(parents=True, exist_ok=True)
    record = dict(made_with=tiny.VERSIONS, kinds=["last", "first", "mean"], cases=[f"{name}_hf_F32" for name in names])
    (out / "cases.json").write_text(json.dumps(record, indent=1) + "\n")
    rows.tofile(out / "rows.f32")
    hidden.tofile(out / "all_rows.f32")
    print(rows.shape, rows.std(), hidden.shape, file=sys.stderr)
    if model is not None:
        record_default(out, pathlib.Path(model))
