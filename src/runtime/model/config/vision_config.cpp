// Lists the families of models that support images.
#include "runtime/model/config/vision_config.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <utility>

#include "format/quote.h"
#include "runtime/model/config/vision_readers.h"

namespace quire {

std::span<const VisionFamily> vision_families() {
  static constexpr std::array<std::string_view, 3> kDecoders{"llama", "mistral", "qwen2"};
  static constexpr std::span<const std::string_view> kLlama = std::span(kDecoders).first(1), kMistral = std::span(kDecoders).subspan(1, 1);
  static constexpr std::array<std::string_view, 1> kGemma3{"gemma3_text"};
  static constexpr std::array<std::string_view, 2> kQwen2{"qwen2_vl_text", "qwen2_vl"}, kQwen2_5{"qwen2_5_vl_text", "qwen2_5_vl"};
  static constexpr std::array kFamilies{VisionFamily{"idefics3", kLlama, read_idefics3_vision},
                                        VisionFamily{"smolvlm", kLlama, read_idefics3_vision},
                                        VisionFamily{"llava", kDecoders, read_llava_vision},
                                        VisionFamily{"gemma3", kGemma3, read_gemma3_vision, true},
                                        VisionFamily{"qwen2_vl", kQwen2, read_qwen2_vision, true, true},
                                        VisionFamily{"qwen2_5_vl", kQwen2_5, read_qwen2_5_vision, true, true},
                                        VisionFamily{"mistral3", kMistral, nullptr}};
  return kFamilies;
}

const VisionFamily* find_vision_family(std::string_view architecture) {
  const auto families = vision_families();
  const auto found = std::ranges::find(families, architecture, &VisionFamily::architecture);
  return found == families.end() ? nullptr : &*found;
}

Result<std::string> decoder_of(const VisionFamily& family, const JsonRef& text_config) {
  auto type = text_config.get_or<std::string>("model_type", std::string(family.decoders.front()));
  if (!type || std::ranges::find(family.decoders, *type) != family.decoders.end()) return type;
  return fail(ErrorCode::unsupported, "config.json: text_config.model_type",
              fmt::format("{} is not implemented as the decoder of this architecture", in_quotes(*type)),
              fmt::format("use a model with a {} decoder", fmt::join(family.decoders, " or ")));
}

Result<VisionConfig> read_vision(const VisionFamily& family, const JsonRef& config, std::uint32_t output_size, std::uint32_t vocab_size) {
  auto vision = family.read(config, output_size);
  if (!vision || (std::in_range<std::uint32_t>(vision->token) && static_cast<std::uint32_t>(vision->token) < vocab_size)) return vision;
  return fail(ErrorCode::corrupt, fmt::format("config.json: {}", vision->token_key),
              fmt::format("{} is not in the vocabulary", vision->token), "use the config that belongs to the weights");
}

std::optional<Error> check_windows(std::span<const std::uint32_t> sliding_windows, const VisionConfig& vision) {
  // Each row of an image attends to the whole image, so the window must be as large as an image.
  for (const std::uint32_t window : sliding_windows)
    if (vision.attends_bidirectionally && window > 0 && window < vision.num_embeds())
      return Error{ErrorCode::unsupported, "config.json: sliding_window",
                   fmt::format("is {}, but an image has {} tokens", window, vision.num_embeds()),
                   "use a model with a larger sliding window"};
  return std::nullopt;
}

}  // namespace quire
