// Reads the file with the image encoder of a GGUF model. Called once, when a model's headers are read; any thread. To add a family, add a
// line to kMmprojFamilies, functions that translate its keys to a folder's (mmproj_keys.h), and the names of its tensors
// (mmproj_names.cpp).
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
#include "runtime/model/weights/image_fields.h"
#include "runtime/model/weights/mmproj_keys.h"

namespace quire {
namespace {

constexpr std::string_view kMmprojFile = "mmproj", kQwenImagePad = "<|image_pad|>";

struct MmprojFamily {
  std::string_view projector;              // clip.projector_type
  std::string_view family;                 // architecture for find_vision_family()
  std::string_view decoder;                // general.architecture of the decoder's file
  std::array<std::string_view, 2> tokens;  // tokens that embeddings replace: the first that is in the vocabulary
  std::uint32_t default_shuffle;           // patches per side of an embedding's square, if the file has no key for it
  // Return the contents of config.json and preprocessor_config.json.
  Result<boost::json::object> (*config)(const GgufFile& file, const ModelConfig& decoder, std::uint32_t default_shuffle);
  Result<boost::json::object> (*processor)(const GgufFile& file, const VisionConfig& vision);
  Result<ImageInfo> (*read_info)(const ImageProcessorFiles& files, const VisionConfig& vision);
};

// Files of Gemma 3 omit the vocabulary's last token, which embeddings replace in folders. The padding token is used instead, because no
// prompt contains it.
constexpr std::array kMmprojFamilies{
    MmprojFamily{"idefics3", "idefics3", "llama", {"<image>", "<image>"}, 2, siglip_config, siglip_processor, read_idefics3_info},
    MmprojFamily{"gemma3", "gemma3", "gemma3", {"<image_soft_token>", "<pad>"}, 4, siglip_config, siglip_processor, read_gemma3_info},
    MmprojFamily{"qwen2vl_merger", "qwen2_vl", "qwen2vl", {kQwenImagePad, kQwenImagePad}, 2, qwen2_config, qwen_processor, read_qwen_info},
    MmprojFamily{
        "qwen2.5vl_merger", "qwen2_5_vl", "qwen2vl", {kQwenImagePad, kQwenImagePad}, 2, qwen2_5_config, qwen_processor, read_qwen_info}};

std::unexpected<Error> refuse_mmproj(std::string_view key, std::string problem, std::string remedy) {
  return fail(ErrorCode::unsupported, fmt::format("{}: {}", kMmprojFile, key), std::move(problem), std::move(remedy));
}

Result<const MmprojFamily*> mmproj_family(const GgufFile& file, const ModelConfig& config) {
  const auto architecture = file.get<std::string>("general.architecture");
  if (!architecture) return std::unexpected(architecture.error());
  if (*architecture != "clip")
    return refuse_mmproj("general.architecture", fmt::format("{} is not an image encoder", in_quotes(*architecture)),
                         "use the mmproj file of the model");
  auto type = file.get_or<std::string>("clip.vision.projector_type", "");
  if (type && type->empty()) type = file.get<std::string>("clip.projector_type");
  if (!type) return std::unexpected(type.error());
  const auto* const found = std::ranges::find(kMmprojFamilies, *type, &MmprojFamily::projector);
  if (found == kMmprojFamilies.end())
    return refuse_mmproj("clip.projector_type", fmt::format("{} is not implemented", in_quotes(*type)),
                         "use idefics3 (SmolVLM), gemma3, qwen2vl_merger or qwen2.5vl_merger, or the model's Hugging Face folder");
  if (config.architecture != found->decoder)
    return refuse_mmproj(
        "clip.projector_type",
        fmt::format("{} belongs to a {} decoder, but the model is {}", in_quotes(*type), found->decoder, config.architecture),
        "use the mmproj file that belongs to the model");
  return found;
}

struct PlaceholderToken {
  std::int64_t id;
  std::string_view text;
};

// Returns the token of the decoder's vocabulary that embeddings replace.
Result<PlaceholderToken> mmproj_token(const MmprojFamily& family, const GgufFile& decoder) {
  const auto tokens = decoder.get_array<std::string_view>("tokenizer.ggml.tokens");
  if (!tokens) return std::unexpected(tokens.error());
  for (const std::string_view wanted : family.tokens)
    if (const auto found = std::ranges::find(*tokens, wanted); found != tokens->end())
      return PlaceholderToken{found - tokens->begin(), wanted};
  return refuse_mmproj(
      "clip.projector_type",
      fmt::format("is {}, but the vocabulary of the model does not contain {}", in_quotes(family.projector), family.tokens[0]),
      "use the mmproj file that belongs to the model");
}

// Returns the error with the mmproj file in place of a folder's file, which the readers of folders name.
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
  auto object = (*family)->config(file, config, (*family)->default_shuffle);
  if (!object) return std::unexpected(std::move(object.error()));
  (*object)["image_token_id"] = (*object)["image_token_index"] = token->id;
  const boost::json::value json(*std::move(object));
  auto vision = read_vision(*find_vision_family((*family)->family), JsonRef(json, "config.json"), config.hidden_size, config.vocab_size);
  if (!vision) return std::unexpected(of_mmproj(std::move(vision.error())));
  if (auto error = check_windows(config.sliding_windows, *vision)) return std::unexpected(of_mmproj(*std::move(error)));
  vision->norm_offset = 0.0F;
  auto processor = (*family)->processor(file, *vision);
  if (!processor) return std::unexpected(std::move(processor.error()));
  const boost::json::value processor_json(*std::move(processor));
  auto pictures = (*family)->read_info({JsonRef(processor_json, kMmprojFile), std::nullopt}, *vision);
  if (!pictures) return std::unexpected(std::move(pictures.error()));
  if (token->text != (*family)->tokens.front()) pictures->place = token->text;
  return Mmproj{*std::move(vision), *std::move(pictures)};
}

}  // namespace quire
