// The file beside a GGUF model that has the encoder of pictures. Read once, when a model's headers are; any thread. A further family is a
// line in kMmprojFamilies, what its config and its processor say of the keys here, and names of tensors.
#include "runtime/model/weights/mmproj.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <boost/json/array.hpp>
#include <boost/json/object.hpp>
#include <boost/json/value.hpp>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

#include "format/json.h"
#include "format/quote.h"
#include "runtime/model/weights/picture_fields.h"

namespace quire {
namespace {

constexpr std::string_view kMmprojFile = "mmproj";

struct MmprojFamily {
  std::string_view projector;              // clip.projector_type
  std::string_view family;                 // as find_vision_family() knows it
  std::string_view decoder;                // general.architecture of the decoder's file
  std::array<std::string_view, 2> tokens;  // whose places take embeddings: the first that the vocabulary has
  std::uint32_t usual_shuffle;             // where the file does not say it
  Result<PictureInfo> (*read_info)(const PictureFiles& files, const VisionConfig& vision);
};

// Files of Gemma 3 leave out the vocabulary's last token, which stands for an embedding in folders; the one that fills up batches stands in
// no prompt either.
constexpr std::array kMmprojFamilies{MmprojFamily{"idefics3", "idefics3", "llama", {"<image>", "<image>"}, 2, read_idefics3_info},
                                     MmprojFamily{"gemma3", "gemma3", "gemma3", {"<image_soft_token>", "<pad>"}, 4, read_gemma3_info}};

std::string clip_key(std::string_view key) {
  return fmt::format("clip.vision.{}", key);
}

std::unexpected<Error> refuse_mmproj(std::string_view key, std::string problem, std::string remedy) {
  return fail(ErrorCode::unsupported, fmt::format("{}: {}", kMmprojFile, key), std::move(problem), std::move(remedy));
}

Result<const MmprojFamily*> mmproj_family(const GgufFile& file, const ModelConfig& config) {
  const auto architecture = file.get<std::string>("general.architecture");
  if (!architecture) return std::unexpected(architecture.error());
  if (*architecture != "clip")
    return refuse_mmproj("general.architecture", fmt::format("{} is no encoder of pictures", in_quotes(*architecture)),
                         "give the file that the model's converter calls mmproj");
  auto type = file.get_or<std::string>("clip.vision.projector_type", "");
  if (type && type->empty()) type = file.get<std::string>("clip.projector_type");
  if (!type) return std::unexpected(type.error());
  const auto* const found = std::ranges::find(kMmprojFamilies, *type, &MmprojFamily::projector);
  if (found == kMmprojFamilies.end())
    return refuse_mmproj("clip.projector_type", fmt::format("{} is not implemented", in_quotes(*type)),
                         "use idefics3 (SmolVLM) or gemma3, or the model's Hugging Face folder");
  if (config.architecture != found->decoder)
    return refuse_mmproj("clip.projector_type",
                         fmt::format("{} sees for a {}, and the model is a {}", in_quotes(*type), found->decoder, config.architecture),
                         "use the two files that belong together");
  return found;
}

// What several keys say, and the first error.
class ClipKeys {
 public:
  explicit ClipKeys(const GgufFile& file) : file_(file) {}
  template <class T>
  T get_or(std::string_view key, T fallback) {
    return take(file_.get_or<T>(clip_key(key), fallback), fallback);
  }
  template <class T>
  T need(std::string_view key) {
    return take(file_.get<T>(clip_key(key)), T{});
  }
  boost::json::array colours(std::string_view key) {
    boost::json::array list;
    for (const float value : take(file_.get_array<float>(clip_key(key)), {})) list.emplace_back(value);
    return list;
  }
  [[nodiscard]] const std::optional<Error>& error() const { return error_; }

 private:
  template <class T>
  T take(Result<T> read, T fallback) {
    if (read) return *std::move(read);
    if (!error_) error_ = std::move(read.error());
    return fallback;
  }

  const GgufFile& file_;
  std::optional<Error> error_;
};

struct PlaceToken {
  std::int64_t id;
  std::string_view text;
};

// The decoder's, as its vocabulary has it.
Result<PlaceToken> mmproj_token(const MmprojFamily& family, const GgufFile& decoder) {
  const auto tokens = decoder.get_array<std::string_view>("tokenizer.ggml.tokens");
  if (!tokens) return std::unexpected(tokens.error());
  for (const std::string_view wanted : family.tokens)
    if (const auto found = std::ranges::find(*tokens, wanted); found != tokens->end()) return PlaceToken{found - tokens->begin(), wanted};
  return refuse_mmproj("clip.projector_type",
                       fmt::format("{}, and the model's vocabulary has no {}", in_quotes(family.projector), family.tokens[0]),
                       "use the two files that belong together");
}

// As config.json has it.
Result<boost::json::object> mmproj_config(const MmprojFamily& family, const GgufFile& file, std::int64_t token) {
  ClipKeys keys(file);
  boost::json::object vision{{"model_type", "siglip_vision_model"}, {"hidden_act", "gelu_pytorch_tanh"}};
  for (const auto& [name, key] : {std::pair("hidden_size", "embedding_length"), std::pair("intermediate_size", "feed_forward_length"),
                                  std::pair("num_hidden_layers", "block_count"), std::pair("num_attention_heads", "attention.head_count"),
                                  std::pair("image_size", "image_size"), std::pair("patch_size", "patch_size")})
    vision[name] = keys.need<std::uint32_t>(key);
  vision["layer_norm_eps"] = keys.get_or<float>("attention.layer_norm_epsilon", 1e-6F);
  const auto shuffle = keys.get_or<std::uint32_t>("projector.scale_factor", family.usual_shuffle);
  if (const auto& error = keys.error()) return std::unexpected(*error);
  boost::json::object whole{{"scale_factor", shuffle}, {"image_token_id", token}, {"image_token_index", token}};
  const std::uint64_t patch = vision["patch_size"].to_number<std::uint32_t>(), side = vision["image_size"].to_number<std::uint32_t>();
  const std::uint64_t tokens = patch == 0 || shuffle == 0 ? 0 : side / patch / shuffle;
  whole["mm_tokens_per_image"] = tokens <= 1U << 16U ? tokens * tokens : 0;
  whole["vision_config"] = std::move(vision);
  return whole;
}

// As preprocessor_config.json has it.
Result<boost::json::object> mmproj_processor(const GgufFile& file, const VisionConfig& vision) {
  ClipKeys keys(file);
  boost::json::object json;
  json["image_mean"] = keys.colours("image_mean");
  json["image_std"] = keys.colours("image_std");
  const std::uint32_t side = vision.image_size;
  if (vision.attends_whole) {
    json["size"] = {{"height", side}, {"width", side}};
  } else {
    json["size"] = {{"longest_edge", keys.get_or<std::uint32_t>("preproc_image_size", 4 * side)}};
    json["max_image_size"] = {{"longest_edge", side}};
  }
  if (const auto& error = keys.error()) return std::unexpected(*error);
  return json;
}

// Readers of folders name a folder's file.
Error of_mmproj(Error error) {
  constexpr std::string_view kConfig = "config.json: ";
  if (error.field.starts_with(kConfig)) error.field.replace(0, kConfig.size(), fmt::format("{}: ", kMmprojFile));
  return error;
}

}  // namespace

Result<Mmproj> read_mmproj(const GgufFile& file, const GgufFile& decoder, const ModelConfig& config) {
  const auto family = mmproj_family(file, config);
  if (!family) return std::unexpected(family.error());
  const auto token = mmproj_token(**family, decoder);
  if (!token) return std::unexpected(token.error());
  auto object = mmproj_config(**family, file, token->id);
  if (!object) return std::unexpected(std::move(object.error()));
  const boost::json::value json(*std::move(object));
  auto vision = read_vision(*find_vision_family((*family)->family), JsonRef(json, "config.json"), config.hidden_size, config.vocab_size);
  if (!vision) return std::unexpected(of_mmproj(std::move(vision.error())));
  if (auto error = check_windows(config.sliding_windows, *vision)) return std::unexpected(of_mmproj(*std::move(error)));
  vision->norm_offset = 0.0F;
  auto processor = mmproj_processor(file, *vision);
  if (!processor) return std::unexpected(std::move(processor.error()));
  const boost::json::value processor_json(*std::move(processor));
  auto pictures = (*family)->read_info({JsonRef(processor_json, kMmprojFile), std::nullopt}, *vision);
  if (!pictures) return std::unexpected(std::move(pictures.error()));
  if (token->text != (*family)->tokens.front()) pictures->place = token->text;
  return Mmproj{*std::move(vision), *std::move(pictures)};
}

std::string folder_name_of(std::string_view name, const VisionConfig& vision) {
  constexpr std::array<std::pair<std::string_view, std::string_view>, 6> kWhole{
      {{"mm.model.fc.weight", "connector.modality_projection.proj.weight"},
       {"mm.input_projection.weight", "multi_modal_projector.mm_input_projection_weight"},
       {"mm.soft_emb_norm.weight", "multi_modal_projector.mm_soft_emb_norm.weight"},
       {"v.position_embd.weight", "embeddings.position_embedding.weight"},
       {"v.patch_embd.", "embeddings.patch_embedding."},
       {"v.post_ln.", "post_layernorm."}}};
  constexpr std::array<std::pair<std::string_view, std::string_view>, 8> kOfLayer{{{"ln1.", "layer_norm1."},
                                                                                   {"ln2.", "layer_norm2."},
                                                                                   {"attn_q.", "self_attn.q_proj."},
                                                                                   {"attn_k.", "self_attn.k_proj."},
                                                                                   {"attn_v.", "self_attn.v_proj."},
                                                                                   {"attn_out.", "self_attn.out_proj."},
                                                                                   {"ffn_up.", "mlp.fc1."},
                                                                                   {"ffn_down.", "mlp.fc2."}}};
  const auto renamed = [&](std::string_view from, std::string_view to) { return fmt::format("{}{}", to, name.substr(from.size())); };
  for (const auto& [from, to] : kWhole)
    if (name.starts_with(from)) return (from.starts_with("v.") ? std::string(vision.tower) : std::string()) + renamed(from, to);
  constexpr std::string_view kBlock = "v.blk.";
  const std::size_t dot = name.find('.', kBlock.size());
  if (!name.starts_with(kBlock) || dot == std::string_view::npos) return std::string(name);
  const std::string_view layer = name.substr(kBlock.size(), dot - kBlock.size()), part = name.substr(dot + 1);
  for (const auto& [from, to] : kOfLayer)
    if (part.starts_with(from)) return fmt::format("{}encoder.layers.{}.{}{}", vision.tower, layer, to, part.substr(from.size()));
  return std::string(name);
}

}  // namespace quire
