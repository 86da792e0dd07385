#pragma once
// Small GGUF models that see, in two files, as llama.cpp's converter makes them of a folder (its classes LlamaModel, Gemma3Model,
// SmolVLMModel and Gemma3VisionModel): renamed, rows of queries and keys in pairs where a llama rotates, 1 added to Gemma's norms.
#include <cstring>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "runtime/model/tiny_vision.h"

namespace quire::tiny {

// As the decoder's name begins in write_vision_folder().
inline std::string decoder_prefix(const VisionConfig& c) {
  return c.processor == "idefics3" ? "model.text_model." : "model.language_model.";
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

// The two halves of a head's rows take turns.
inline void pair_rows(Tensor& tensor, std::uint32_t num_heads) {
  const std::size_t row = tensor.bytes.size() / tensor.shape.front(), half = tensor.shape.front() / num_heads / 2;
  std::string out;
  for (std::size_t head = 0; head < num_heads; ++head)
    for (std::size_t i = 0; i < half; ++i)
      for (std::size_t part = 0; part < 2; ++part) out += tensor.bytes.substr(((2 * head + part) * half + i) * row, row);
  tensor.bytes = std::move(out);
}

inline std::vector<Tensor> decoder_of_gguf(const ModelConfig& c) {
  const bool is_gemma = c.vision->processor == "gemma3";
  const std::vector<Tensor> named = make_tensors(c, false, "F32"), renamed = make_tensors(c, true, "F32");
  std::vector<Tensor> out;
  for (std::size_t i = 0; i < named.size(); ++i) {
    Tensor tensor = make_tensor(replace_start(named[i].name, "model.", decoder_prefix(*c.vision)), GgmlType::f32, named[i].shape);
    tensor.name = renamed.at(i).name;
    if (is_gemma && tensor.name.ends_with("norm.weight")) add_one(tensor);
    if (!is_gemma && tensor.name.ends_with("attn_q.weight")) pair_rows(tensor, c.num_heads);
    if (!is_gemma && tensor.name.ends_with("attn_k.weight")) pair_rows(tensor, c.num_kv_heads);
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

// `place`: the vocabulary's last token; `without`: a key that the second file lacks; `more`: a tensor that it has, too.
struct TwoFilesOptions {
  std::string place = "<image>";
  std::string projector = {};
  std::string without = {};
  std::string more = {};
};

inline TwoFiles write_two_files(const std::string& folder, const boost::json::value& config, const TwoFilesOptions& options = {}) {
  const auto c = config_from_hf(JsonRef(config, "config.json"));
  QUIRE_CHECK(c.has_value() && c->vision.has_value(), "a config of a model that sees");
  const VisionConfig& v = *c->vision;
  const bool is_gemma = v.processor == "gemma3";
  ModelConfig decoder = *c;
  decoder.architecture = is_gemma ? "gemma3" : "llama";
  GgufHeader text = gguf_header(decoder);
  std::vector<std::string> tokens;
  for (std::uint32_t i = 0; i + 1 < c->vocab_size; ++i) tokens.push_back("t" + std::to_string(i));
  tokens.push_back(options.place);
  text.add("tokenizer.ggml.tokens", tokens);
  GgufHeader clip;
  clip.add("general.architecture", "clip");
  clip.add("clip.projector_type", !options.projector.empty() ? options.projector : is_gemma ? "gemma3" : "idefics3");
  for (const auto& [key, value] : {std::pair("embedding_length", v.hidden_size),
                                   {"feed_forward_length", v.intermediate_size},
                                   {"block_count", v.num_layers},
                                   {"attention.head_count", v.num_heads},
                                   {"image_size", v.image_size},
                                   {"patch_size", v.patch_size},
                                   {"projector.scale_factor", v.shuffle},
                                   {"preproc_image_size", 64U}})
    if (options.without != key) clip.add("clip.vision." + std::string(key), value);
  clip.add("clip.vision.attention.layer_norm_epsilon", v.norm_epsilon);
  for (const char* key : {"image_mean", "image_std"})
    if (options.without != key) clip.add("clip.vision." + std::string(key), std::vector<float>{0.5F, 0.5F, 0.5F});
  clip.add("clip.use_gelu", true);
  std::vector<Tensor> seeing;
  add_vision_tensors(v, GgmlType::f32, seeing);
  for (Tensor& tensor : seeing) {
    tensor.name = name_in_mmproj(tensor.name, v.tower);
    if (tensor.name == "mm.soft_emb_norm.weight") add_one(tensor);
  }
  if (!options.more.empty()) seeing.push_back(make_tensor(options.more, GgmlType::f32, {8}));
  std::filesystem::create_directories(folder);
  TwoFiles files{folder + "/model.gguf", folder + "/mmproj.gguf"};
  write_file(files.model, text.file(decoder_of_gguf(*c)));
  write_file(files.mmproj, clip.file(seeing));
  return files;
}

}  // namespace quire::tiny
