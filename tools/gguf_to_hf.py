"""Converts a GGUF file to a Hugging Face folder in bf16, for vLLM:  python gguf_to_hf.py MODEL.gguf FOLDER

Needs transformers below 5, torch, gguf, accelerate and sentencepiece.
"""

import os
import sys
from pathlib import Path

os.environ.setdefault("HF_HUB_OFFLINE", "1")

import torch  # noqa: E402
from transformers import AutoModelForCausalLM, AutoTokenizer  # noqa: E402


def main(model: str, folder: str) -> None:
    source = Path(model).resolve()
    options = {"gguf_file": source.name}
    AutoTokenizer.from_pretrained(source.parent, **options).save_pretrained(folder)
    AutoModelForCausalLM.from_pretrained(source.parent, torch_dtype=torch.bfloat16, **options).save_pretrained(folder)
    (Path(folder) / "tokenizer.model").unlink(missing_ok=True)  # otherwise vLLM treats the GGUF file as a SentencePiece model


if __name__ == "__main__":
    main(*sys.argv[1:3])
