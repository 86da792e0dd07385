// Reads the files of a Hugging Face folder that concern the tokenizer.
#include <array>
#include <optional>

#include "format/mapped_file.h"
#include "format/tokenizer_file.h"
#include "format/tokenizer_hf.h"

namespace quire {
namespace {

constexpr JsonLimits kLimits{.max_bytes = std::uint64_t{256} << 20, .max_depth = 64};
constexpr std::uint64_t kMaxTemplateBytes = std::uint64_t{4} << 20;

// nullopt if there is no such file.
Result<std::optional<boost::json::value>> read_optional(const std::string& path) {
  auto value = read_json_file(path, kLimits);
  if (value) return std::optional(std::move(*value));
  if (value.error().code == ErrorCode::not_found) return std::optional<boost::json::value>{};
  return std::unexpected(std::move(value.error()));
}

}  // namespace

Result<TokenizerSpec> tokenizer_from_hf(const std::string& folder) {
  const std::string path = folder + "/tokenizer.json";
  const auto json = read_json_file(path, kLimits);
  if (!json && json.error().code == ErrorCode::not_found)
    return fail(ErrorCode::not_found, path, "no such file", "a Hugging Face folder needs its tokenizer.json; or give a GGUF file");
  if (!json) return std::unexpected(json.error());
  hf::Files files{.tokenizer = JsonRef(*json, path)};
  struct Companion {
    std::string path;
    std::optional<JsonRef>* target;
    std::optional<boost::json::value> value;
  };
  std::array<Companion, 4> companions{{{folder + "/tokenizer_config.json", &files.config, {}},
                                       {folder + "/special_tokens_map.json", &files.special_tokens, {}},
                                       {folder + "/generation_config.json", &files.generation, {}},
                                       {folder + "/config.json", &files.model, {}}}};
  for (Companion& companion : companions) {
    auto value = read_optional(companion.path);
    if (!value) return std::unexpected(std::move(value.error()));
    companion.value = std::move(*value);
    if (companion.value) companion.target->emplace(*companion.value, companion.path);
  }
  auto spec = hf::read_tokenizer(files);
  if (!spec) return spec;
  // Of a processor, in the words of older versions of transformers.
  const std::string processors = folder + "/chat_template.json";
  const auto processor = read_optional(processors);
  if (!processor) return std::unexpected(processor.error());
  if (const auto& value = *processor; value.has_value()) {
    auto text = JsonRef(*value, processors).get<std::string>("chat_template");
    if (!text) return std::unexpected(std::move(text.error()));
    spec->chat_template = std::move(*text);
  }
  auto chat_template = read_text_file(folder + "/chat_template.jinja", kMaxTemplateBytes);
  if (chat_template) spec->chat_template = std::move(*chat_template);
  if (!chat_template && chat_template.error().code != ErrorCode::not_found) return std::unexpected(std::move(chat_template.error()));
  return spec;
}

}  // namespace quire
