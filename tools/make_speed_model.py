#!/usr/bin/env python3
"""Writes a GGUF file with random weights in the shape of a popular model, to measure speed when the model itself is unavailable.

    venv/bin/pip install gguf==0.19.0 numpy
    venv/bin/python tools/make_speed_model.py moe OUT.gguf --vocabulary MODEL.gguf

- moe: 64 experts, 8 of them for each token; 1.3 of 6.9 billion weights are active (the shape of OLMoE-1B-7B).
- hybrid: 36 Mamba-2 layers and 4 attention layers, 1.5 billion weights (Granite 4.0 H 1B).
- lfm2: 10 short convolutions and 6 attention layers, 1.2 billion weights (LFM2-1.2B).
- dense: 16 attention layers, 1.1 billion weights (Llama 3.2 1B).

Matrices have the type --weights. The output matrix (or the embedding, if both are the same matrix) is Q6_K, or BF16 if the others are. The
vocabulary is copied from the other file.
"""

import argparse

import gguf
import numpy as np

Q4_0, Q4_K, Q6_K, BF16 = (gguf.GGMLQuantizationType[name] for name in ("Q4_0", "Q4_K", "Q6_K", "BF16"))
LFM2_ATTENDS, GRANITE_ATTENDS = (2, 5, 8, 10, 12, 14), (5, 15, 25, 35)


class Model:
    def __init__(self, path, architecture, vocabulary, rng, kind):
        self.writer, self.rng, self.kind = gguf.GGUFWriter(path, architecture), rng, kind
        reader = gguf.GGUFReader(vocabulary)
        for field in reader.fields.values():
            if field.name.startswith("tokenizer.") and field.name != "tokenizer.chat_template":
                kinds = field.types
                self.writer.add_key_value(field.name, field.contents(), kinds[0], kinds[1] if len(kinds) > 1 else None)
        self.num_tokens = len(reader.fields["tokenizer.ggml.tokens"].data)

    def matrix(self, name, *shape, kind=None, gain=1.0):
        """Adds a matrix of random weights. Their standard deviation is `gain` / sqrt(columns), which keeps the activations finite. Their
        mean must be 0: a common offset would grow from layer to layer, until all tokens have similar activations and a router sends all
        tokens to the same experts.
        """
        kind = self.kind if kind is None or self.kind == BF16 else kind
        if kind == BF16:
            values = (gain * shape[-1] ** -0.5 * self.rng.standard_normal(shape, np.float32)).view(np.uint32) >> 16
            self.writer.add_tensor(name, values.astype(np.uint16).view(np.uint8), raw_dtype=kind)
            return
        width, size = gguf.GGML_QUANT_SIZES[kind]
        blocks = np.frombuffer(self.rng.bytes(int(np.prod(shape)) // width * size), np.uint8).reshape(-1, size).copy()
        if kind == Q4_0:  # codes are -8 to 7; each -8 is replaced by 0
            blocks |= ((blocks & 0x0F) == 0).astype(np.uint8) * 0x08
            blocks |= ((blocks & 0xF0) == 0).astype(np.uint8) * 0x80
        scale = np.float16(gain * shape[-1] ** -0.5 / {Q4_0: 4.2, Q4_K: 4.6 * 32, Q6_K: 18.5 * 74}[kind])
        at = size - 2 if kind == Q6_K else 0
        blocks[:, at : at + 2] = np.frombuffer(scale.tobytes(), np.uint8)
        if kind == Q4_K:  # all scales and minimums of groups are 32, in 6-bit packing; a code of 7.5 would mean 0
            blocks[:, 2:4] = np.frombuffer(np.float16(7.5 * scale).tobytes(), np.uint8)
            blocks[:, 4:12], blocks[:, 12:16] = 0xA0, 0
        self.writer.add_tensor(name, blocks.reshape(*shape[:-1], shape[-1] // width * size), raw_dtype=kind)

    def floats(self, name, *shape, around=0.0, spread=0.0):
        self.writer.add_tensor(name, (around + spread * self.rng.standard_normal(shape)).astype(np.float32))

    def norm(self, name, size):
        self.floats(name, size, around=1.0)

    def attention(self, at, hidden, heads, kv_heads, head):
        for name, rows in (("q", heads), ("k", kv_heads), ("v", kv_heads)):
            self.matrix(f"{at}.attn_{name}.weight", rows * head, hidden)
        self.matrix(f"{at}.attn_output.weight", hidden, heads * head)

    def feed_forward(self, at, hidden, inner):
        self.matrix(f"{at}.ffn_gate.weight", inner, hidden)
        self.matrix(f"{at}.ffn_up.weight", inner, hidden)
        self.matrix(f"{at}.ffn_down.weight", hidden, inner)

    def common(self, layers, hidden, inner, heads, kv_heads, base):
        self.writer.add_file_type({Q4_0: 2, Q4_K: 15, BF16: 32}[self.kind])  # OpenVINO refuses a file without it
        self.writer.add_context_length(8192)
        self.writer.add_block_count(layers)
        self.writer.add_embedding_length(hidden)
        self.writer.add_feed_forward_length(inner)
        self.writer.add_head_count(heads)
        self.writer.add_head_count_kv(kv_heads)
        self.writer.add_layer_norm_rms_eps(1e-5)
        self.writer.add_rope_freq_base(base)
        self.writer.add_vocab_size(self.num_tokens)

    def layers(self, count, hidden, inner, output_norm):
        """Adds a convolution or attention after norms and feed-forward weights, for each layer. Yields (layer number, prefix of the tensor
        names)."""
        self.matrix("token_embd.weight", self.num_tokens, hidden, kind=Q6_K)
        self.norm(output_norm, hidden)
        for layer in range(count):
            at = f"blk.{layer}"
            self.norm(f"{at}.attn_norm.weight", hidden)
            self.norm(f"{at}.ffn_norm.weight", hidden)
            self.feed_forward(at, hidden, inner)
            yield layer, at

    def write(self):
        self.writer.write_header_to_file()
        self.writer.write_kv_data_to_file()
        self.writer.write_tensors_to_file(progress=True)
        self.writer.close()


def moe(model):
    hidden, inner, experts = 2048, 1024, 64
    model.common(16, hidden, inner, 16, 16, 1e4)
    model.writer.add_expert_count(experts)
    model.writer.add_expert_used_count(8)
    model.matrix("token_embd.weight", model.num_tokens, hidden, gain=hidden**0.5)  # attention must not outweigh the token itself
    model.matrix("output.weight", model.num_tokens, hidden, kind=Q6_K)
    model.norm("output_norm.weight", hidden)
    for layer in range(16):
        at = f"blk.{layer}"
        for name in ("attn_norm", "ffn_norm", "attn_q_norm", "attn_k_norm"):
            model.norm(f"{at}.{name}.weight", hidden)
        model.attention(at, hidden, 16, 16, 128)
        model.floats(f"{at}.ffn_gate_inp.weight", experts, hidden, spread=hidden**-0.5)
        model.matrix(f"{at}.ffn_gate_exps.weight", experts, inner, hidden)
        model.matrix(f"{at}.ffn_up_exps.weight", experts, inner, hidden)
        model.matrix(f"{at}.ffn_down_exps.weight", experts, hidden, inner)


def hybrid(model):
    hidden, inner, heads, head, state = 1536, 4096, 48, 64, 128
    model.common(40, hidden, inner, 12, [4 * (layer in GRANITE_ATTENDS) for layer in range(40)], 1e4)
    model.writer.add_attention_scale(0.0078125)
    model.writer.add_embedding_scale(12.0)
    model.writer.add_residual_scale(0.22)
    model.writer.add_logit_scale(6.0)
    model.writer.add_rope_dimension_count(128)
    model.writer.add_rope_scaling_finetuned(False)
    model.writer.add_ssm_conv_kernel(4)
    model.writer.add_ssm_inner_size(heads * head)
    model.writer.add_ssm_state_size(state)
    model.writer.add_ssm_group_count(1)
    model.writer.add_ssm_time_step_rank(heads)
    for layer, at in model.layers(40, hidden, inner, "output_norm.weight"):
        if layer in GRANITE_ATTENDS:
            model.attention(at, hidden, 12, 4, 128)
            continue
        model.matrix(f"{at}.ssm_in.weight", 2 * heads * head + 2 * state + heads, hidden)
        model.floats(f"{at}.ssm_conv1d.weight", heads * head + 2 * state, 4, spread=0.3)
        model.floats(f"{at}.ssm_conv1d.bias", heads * head + 2 * state, spread=0.1)
        model.floats(f"{at}.ssm_dt.bias", heads, around=-2.0, spread=0.5)
        model.writer.add_tensor(f"{at}.ssm_a", -np.exp(model.rng.standard_normal((heads, 1))).astype(np.float32))
        model.floats(f"{at}.ssm_d", heads, 1, around=1.0)
        model.floats(f"{at}.ssm_norm.weight", 1, heads * head, around=1.0)
        model.matrix(f"{at}.ssm_out.weight", hidden, heads * head)


def lfm2(model):
    hidden, inner = 2048, 8192
    model.common(16, hidden, inner, 32, [8 * (layer in LFM2_ATTENDS) for layer in range(16)], 1e6)
    model.writer.add_shortconv_l_cache(3)
    for layer, at in model.layers(16, hidden, inner, "token_embd_norm.weight"):
        if layer in LFM2_ATTENDS:
            model.attention(at, hidden, 32, 8, 64)
            model.norm(f"{at}.attn_q_norm.weight", 64)
            model.norm(f"{at}.attn_k_norm.weight", 64)
            continue
        model.matrix(f"{at}.shortconv.in_proj.weight", 3 * hidden, hidden)
        model.floats(f"{at}.shortconv.conv.weight", hidden, 3, spread=0.4)
        model.matrix(f"{at}.shortconv.out_proj.weight", hidden, hidden)


def dense(model):
    model.common(16, 2048, 8192, 32, 8, 5e5)
    for _, at in model.layers(16, 2048, 8192, "output_norm.weight"):
        model.attention(at, 2048, 32, 8, 64)


SHAPES = {"dense": ("llama", dense), "moe": ("olmoe", moe), "hybrid": ("granitehybrid", hybrid), "lfm2": ("lfm2", lfm2)}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("kind", choices=SHAPES)
    parser.add_argument("out", help="output file")
    parser.add_argument("--vocabulary", required=True, metavar="MODEL.gguf", help="GGUF file whose tokenizer is copied")
    parser.add_argument("--weights", choices=("Q4_0", "Q4_K", "BF16"), default="Q4_0", help="type of the matrices (default: %(default)s)")
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    architecture, fill = SHAPES[options.kind]
    model = Model(options.out, architecture, options.vocabulary, np.random.default_rng(options.seed),
                  gguf.GGMLQuantizationType[options.weights])  # fmt: skip
    fill(model)
    model.write()


if __name__ == "__main__":
    main()
