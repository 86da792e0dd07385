#pragma once
// Small GGUF models that support images, in two files, as llama.cpp's converter makes them from a folder (its classes LlamaModel,
// Gemma3Model, Qwen2VLModel, SmolVLMModel, Gemma3VisionModel and Qwen2VLVisionModel). It renames tensors, pairs rows of queries and keys
// where a llama rotates, and adds 1 to Gemma's norms. For Qwen's encoders it separates queries, keys, values and frames.
#include <cstring>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "runtime/model/tiny_qwen_vl.h"
#include "runtime/model/tiny_vision.h"

namespace quire::tiny {

// Returns the prefix of the decoder's names in write_vision_folder().
inline std::string decoder_prefix(const VisionConfig& c) {
  return c.processor == "qwen2_vl" ? "model." : c.processor == "idefics3" ? "model.text_model." : "model.language_model.";
}

inline void add_one(Tensor& tensor) {
  QUIRE_CHECK(tensor.type == GgmlType::f32, "norms of floats");
  for (std::size_t at = 0; at < tensor.bytes.size(); at += sizeof(float)) {
    float value;
    std::memcpy(&value, tensor.bytes.data() + at, sizeof(float));
    value += 1.0F;
    std::memcpy(tensor.bytes.data() + at, &value, sizeof(float));
  }
}

// Interleaves the two halves of a head's rows.
inline void pair_rows(Tensor& tensor, std::uint32_t num_heads) {
  const std::size_t row = tensor.bytes.size() / tensor.shape.front(), half = tensor.shape.front() / num_heads / 2;
  std::string out;
  for (std::size_t head = 0; head < num_heads; ++head)
    for (std::size_t i = 0; i < half; ++i)
      for (std::size_t part = 0; part < 2; ++part) out += tensor.bytes.substr(((2 * head + part) * half + i) * row, row);
  tensor.bytes = std::move(out);
}

inline std::vector<Tensor> decoder_of_gguf(const ModelConfig& c) {
  const bool is_gemma = c.vision->processor == "gemma3", is_llama = c.vision->processor == "idefics3";
  const std::vector<Tensor> named = make_tensors(c, false, "F32"), renamed = make_tensors(c, true, "F32");
  std::vector<Tensor> out;
  for (std::size_t i = 0; i < named.size(); ++i) {
    Tensor tensor = make_tensor(replace_start(named[i].name, "model.", decoder_prefix(*c.vision)), GgmlType::f32, named[i].shape);
    tensor.name = renamed.at(i).name;
    if (is_gemma && tensor.name.ends_with("norm.weight")) add_one(tensor);
    if (is_llama && tensor.name.ends_with("attn_q.weight")) pair_rows(tensor, c.num_heads);
    if (is_llama && tensor.name.ends_with("attn_k.weight")) pair_rows(tensor, c.num_kv_heads);
    out.push_back(std::move(tensor));
  }
  return out;
}

// Returns outputs [first, first + count) of a matrix or of a bias.
inline Tensor outputs_of(const Tensor& tensor, std::string name, std::uint64_t first, std::uint64_t count) {
  const std::size_t row = tensor.bytes.size() / tensor.shape.front();
  Tensor out{std::move(name), tensor.type, tensor.shape, tensor.bytes.substr(first * row, count * row)};
  out.shape.front() = count;
  return out;
}

// Returns one frame of [outputs, colours, frames, height, width].
inline Tensor frame_of(const Tensor& tensor, std::string name, std::uint64_t frame) {
  const auto& shape = tensor.shape;
  const std::size_t size = tensor.bytes.size() / (shape[0] * shape[1] * shape[2]);
  Tensor out{std::move(name), tensor.type, {shape[0], shape[1], shape[3], shape[4]}, {}};
  for (std::uint64_t i = 0; i < shape[0] * shape[1]; ++i) out.bytes += tensor.bytes.substr((i * shape[2] + frame) * size, size);
  return out;
}

inline std::vector<Tensor> qwen_mmproj_tensors(const VisionConfig& c, bool has_older_names) {
  std::vector<Tensor> out;
  for (Tensor& tensor : qwen_vision_tensors(c, GgmlType::f32, "visual.")) {
    std::string name = tensor.name;
    if (name == "visual.patch_embed.proj.weight") {
      for (const std::uint64_t frame : {0, 1})
        out.push_back(frame_of(tensor, frame == 0 ? "v.patch_embd.weight" : "v.patch_embd.weight.1", frame));
      continue;
    }
    for (const auto& [from, to] : {std::pair("visual.merger.ln_q", "v.post_ln"),
                                   {"visual.merger.mlp", "mm"},
                                   {"visual.blocks", "v.blk"},
                                   {"norm1", "ln1"},
                                   {"norm2", "ln2"},
                                   {"attn.proj", "attn_out"},
                                   {"mlp.gate_proj", "ffn_gate"},
                                   {"mlp.up_proj", "ffn_up"},
                                   {"mlp.down_proj", "ffn_down"},
                                   {"mlp.fc1", has_older_names ? "ffn_down" : "ffn_up"},
                                   {"mlp.fc2", has_older_names ? "ffn_up" : "ffn_down"}})
      if (const std::size_t at = name.find(from); at != std::string::npos) name.replace(at, std::string_view(from).size(), to);
    const std::size_t qkv = name.find("attn.qkv");
    for (std::size_t part = 0; qkv != std::string::npos && part < 3; ++part) {
      std::string own = name;
      own.replace(qkv, 8, std::string("attn_") + "qkv"[part]);
      out.push_back(outputs_of(tensor, std::move(own), part * c.hidden_size, c.hidden_size));
    }
    if (qkv != std::string::npos) continue;
    tensor.name = std::move(name);
    out.push_back(std::move(tensor));
  }
  return out;
}

inline std::string name_in_mmproj(std::string name, std::string_view tower) {
  for (const auto& [from, to] : {std::pair("model.connector.modality_projection.proj", "mm.model.fc"),
                                 {"model.multi_modal_projector.mm_soft_emb_norm", "mm.soft_emb_norm"},
                                 {"model.multi_modal_projector.mm_input_projection_weight", "mm.input_projection.weight"}})
    if (name.starts_with(from)) return replace_start(name, from, to);
  name = replace_start(name, "model." + std::string(tower), "v.");
  for (const auto& [from, to] : {std::pair("embeddings.patch_embedding", "patch_embd"),
                                 {"embeddings.position_embedding", "position_embd"},
                                 {"post_layernorm", "post_ln"},
                                 {"encoder.layers", "blk"},
                                 {"layer_norm1", "ln1"},
                                 {"layer_norm2", "ln2"},
                                 {"self_attn.q_proj", "attn_q"},
                                 {"self_attn.k_proj", "attn_k"},
                                 {"self_attn.v_proj", "attn_v"},
                                 {"self_attn.out_proj", "attn_out"},
                                 {"mlp.fc1", "ffn_up"},
                                 {"mlp.fc2", "ffn_down"}})
    if (const std::size_t at = name.find(from); at != std::string::npos) name.replace(at, std::string_view(from).size(), to);
  return name;
}

struct TwoFiles {
  std::string model, mmproj;
};

// `place` is the vocabulary's last token, `without` a key to leave out of the second file, `more` an additional tensor of it.
struct TwoFilesOptions {
  std::string place = "<image>";
  std::string projector = {};
  std::string without = {};
  std::string more = {};
  bool has_older_names = false;  // older names of Qwen2-VL
};

inline GgufHeader clip_header(const VisionConfig& v, const TwoFilesOptions& options) {
  const bool is_qwen = v.processor == "qwen2_vl";
  const std::string usual = v.is_gated ? "qwen2.5vl_merger" : is_qwen ? "qwen2vl_merger" : std::string(v.processor);
  GgufHeader clip;
  clip.add("general.architecture", "clip");
  clip.add("clip.projector_type", options.projector.empty() ? usual : options.projector);
  // For Qwen2-VL the converter writes the decoder's width under the key of the encoder's width.
  std::vector<std::pair<std::string, std::uint32_t>> keys = {{"embedding_length", v.hidden_size},
                                                             {"feed_forward_length", is_qwen ? v.output_size : v.intermediate_size},
                                                             {"block_count", v.num_layers},
                                                             {"attention.head_count", v.num_heads},
                                                             {"image_size", is_qwen ? 560 : v.image_size},
                                                             {"patch_size", v.patch_size}};
  if (is_qwen)
    keys.insert(keys.end(), {{"image_min_pixels", 64}, {"image_max_pixels", 16384}});
  else
    keys.insert(keys.end(), {{"projector.scale_factor", v.shuffle}, {"preproc_image_size", 64}});
  if (v.is_gated)
    keys.insert(keys.end(), {{"n_wa_pattern", v.full_attention_layers.front() + 1}, {"window_size", v.window * v.shuffle * v.patch_size}});
  for (const auto& [key, value] : keys)
    if (options.without != key) clip.add("clip.vision." + key, value);
  clip.add("clip.vision.attention.layer_norm_epsilon", v.norm_epsilon);
  const std::vector<float> half(3, 0.5F), mean{0.48145466F, 0.4578275F, 0.40821073F}, deviation{0.26862954F, 0.26130258F, 0.27577711F};
  for (const auto& [key, colours] : {std::pair("image_mean", &mean), {"image_std", &deviation}})
    if (options.without != key) clip.add("clip.vision." + std::string(key), is_qwen ? *colours : half);
  if (!is_qwen) clip.add("clip.use_gelu", true);
  if (v.is_gated) clip.add("clip.use_silu", true);
  return clip;
}

inline std::vector<Tensor> mmproj_tensors(const VisionConfig& v, const TwoFilesOptions& options) {
  if (v.processor == "qwen2_vl") return qwen_mmproj_tensors(v, options.has_older_names);
  std::vector<Tensor> seeing;
  add_vision_tensors(v, GgmlType::f32, seeing);
  for (Tensor& tensor : seeing) {
    tensor.name = name_in_mmproj(tensor.name, v.tower);
    if (tensor.name == "mm.soft_emb_norm.weight") add_one(tensor);
  }
  return seeing;
}

inline TwoFiles write_two_files(const std::string& folder, const boost::json::value& config, const TwoFilesOptions& options = {}) {
  const auto c = config_from_hf(JsonRef(config, "config.json"));
  QUIRE_CHECK(c.has_value() && c->vision.has_value(), "the config describes a model that supports images");
  const VisionConfig& v = *c->vision;
  ModelConfig decoder = *c;
  decoder.architecture = v.processor == "gemma3" ? "gemma3" : v.processor == "idefics3" ? "llama" : "qwen2vl";
  GgufHeader text = gguf_header(decoder);
  if (decoder.has_rope_sections())
    text.add("qwen2vl.rope.dimension_sections",
             std::vector<std::uint32_t>{c->rope_sections[0], c->rope_sections[1], c->rope_sections[2], 0});
  std::vector<std::string> tokens;
  for (std::uint32_t i = 0; i + 1 < c->vocab_size; ++i) tokens.push_back("t" + std::to_string(i));
  tokens.push_back(options.place);
  text.add("tokenizer.ggml.tokens", tokens);
  const GgufHeader clip = clip_header(v, options);
  std::vector<Tensor> seeing = mmproj_tensors(v, options);
  if (!options.more.empty()) seeing.push_back(make_tensor(options.more, GgmlType::f32, {8}));
  std::filesystem::create_directories(folder);
  TwoFiles files{folder + "/model.gguf", folder + "/mmproj.gguf"};
  write_file(files.model, text.file(decoder_of_gguf(*c)));
  write_file(files.mmproj, clip.file(seeing));
  return files;
}

}  // namespace quire::tiny
