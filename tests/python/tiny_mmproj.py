"""Writes a folder of tiny_vision as two GGUF files, with the tensor names of gguf-py."""

import json

import gguf
import numpy as np
from safetensors.numpy import load_file

from tiny_folder import byte_pieces

Keys = gguf.Keys


def add_tensors(writer, tensors, architecture, layers, prepare=lambda name, values: values):
    names = gguf.get_tensor_name_map(architecture, layers)
    for name, values in tensors.items():
        writer.add_tensor(names.get_name(name, try_suffixes=(".weight", ".bias")), prepare(name, values))


def in_pairs(values, heads):
    """Interleaves the two halves of a head's rows, because GGUF's llama rotates pairs."""
    return np.ascontiguousarray(values.reshape(heads, 2, -1, values.shape[1]).swapaxes(1, 2).reshape(values.shape))


def finish(writer):
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def write_decoder(path, tensors, text, tokenizer, template, architecture=gguf.MODEL_ARCH.LLAMA):
    writer = gguf.GGUFWriter(path, gguf.MODEL_ARCH_NAMES[architecture])
    heads, kv_heads = text["num_attention_heads"], text["num_key_value_heads"]
    writer.add_context_length(text["max_position_embeddings"])
    writer.add_embedding_length(text["hidden_size"])
    writer.add_block_count(text["num_hidden_layers"])
    writer.add_feed_forward_length(text["intermediate_size"])
    writer.add_head_count(heads)
    writer.add_head_count_kv(kv_heads)
    writer.add_layer_norm_rms_eps(text["rms_norm_eps"])
    writer.add_vocab_size(text["vocab_size"])
    marks = [token["content"] for token in tokenizer["added_tokens"]]
    kinds = gguf.TokenType
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre("gpt-2")
    writer.add_token_list([*byte_pieces(), *marks])
    writer.add_token_types([kinds.NORMAL] * 256 + [kinds.CONTROL] * len(marks))
    writer.add_token_merges(["Ġ a"])
    writer.add_eos_token_id(256 + marks.index("<|im_end|>"))
    writer.add_chat_template(template)

    def prepare(name, values):
        if architecture != gguf.MODEL_ARCH.LLAMA:
            return values
        return in_pairs(values, heads if "q_proj" in name else kv_heads) if "q_proj" in name or "k_proj" in name else values

    add_tensors(writer, tensors, architecture, text["num_hidden_layers"], prepare)
    return writer


def write_mmproj(path, tensors, config, processor):
    vision = config["vision_config"]
    writer = gguf.GGUFWriter(path, "clip")
    writer.add_clip_has_vision_encoder(True)
    writer.add_clip_projector_type(gguf.VisionProjectorType.IDEFICS3)
    writer.add_vision_projection_dim(config["text_config"]["hidden_size"])
    writer.add_vision_image_size(vision["image_size"])
    writer.add_vision_patch_size(vision["patch_size"])
    writer.add_vision_embedding_length(vision["hidden_size"])
    writer.add_vision_feed_forward_length(vision["intermediate_size"])
    writer.add_vision_block_count(vision["num_hidden_layers"])
    writer.add_vision_head_count(vision["num_attention_heads"])
    writer.add_vision_image_mean(processor["image_mean"])
    writer.add_vision_image_std(processor["image_std"])
    writer.add_vision_attention_layernorm_eps(vision.get("layer_norm_eps", 1e-6))
    writer.add_vision_projector_scale_factor(config["scale_factor"])
    writer.add_vision_use_gelu(True)
    writer.add_uint32("clip.vision.preproc_image_size", processor["size"]["longest_edge"])
    add_tensors(writer, tensors, gguf.MODEL_ARCH.MMPROJ, vision["num_hidden_layers"])
    return writer


def write_two_files(folder, model_path, mmproj_path):
    def read(name):
        return json.loads((folder / name).read_text())

    config, tensors = read("config.json"), load_file(folder / "model.safetensors")
    decoder = {name.replace("model.text_model.", "model."): values for name, values in tensors.items() if "text_model" in name or "lm_head" in name}
    seeing = {name: values for name, values in tensors.items() if "vision_model" in name or "connector" in name}
    for writer in (
        write_decoder(model_path, decoder, config["text_config"], read("tokenizer.json"), read("tokenizer_config.json")["chat_template"]),
        write_mmproj(mmproj_path, seeing, config, read("preprocessor_config.json")),
    ):
        finish(writer)
