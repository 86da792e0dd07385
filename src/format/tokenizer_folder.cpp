// Reads the tokenizer files of a Hugging Face folder.
#include <array>
#include <optional>

#include "format/mapped_file.h"
#include "format/named_templates.h"
#include "format/tokenizer_file.h"
#include "format/tokenizer_hf.h"

namespace quire {
namespace {

constexpr JsonLimits kLimits{.max_bytes = std::uint64_t{256} << 20, .max_depth = 64};
constexpr std::uint64_t kMaxTemplateBytes = std::uint64_t{4} << 20;

// Returns nullopt if the file does not exist.
Result<std::optional<boost::json::value>> read_optional(const std::string& path, const JsonLimits& limits = kPythonJson) {
  auto value = read_json_file(path, limits);
  if (value) return std::optional(std::move(*value));
  if (value.error().code == ErrorCode::not_found) return std::optional<boost::json::value>{};
  return std::unexpected(std::move(value.error()));
}

// Reads the tokenizer of a folder without tokenizer.json from tekken.json or tiktoken.model.
Result<TokenizerSpec> read_ranked(const std::string& folder, const hf::Files& files) {
  for (const char* name : {"tekken.json", "tiktoken.model"}) {
    const std::string path = folder + "/" + name;
    const auto text = read_text_file(path, kLimits.max_bytes);
    if (!text && text.error().code == ErrorCode::not_found) continue;
    if (!text) return std::unexpected(text.error());
    auto spec = path.ends_with("tekken.json") ? hf::read_tekken(*text, path) : hf::read_tiktoken(*text, path, files);
    return spec ? hf::read_companions(std::move(*spec), files) : spec;
  }
  return fail(ErrorCode::not_found, folder + "/tokenizer.json", "no such file",
              "add tokenizer.json, tekken.json or tiktoken.model to the folder, or use a GGUF file");
}

// Reads chat_template.jinja, or chat_template.json, which older versions of transformers write for a processor. Combines it with the
// separate template for requests with tools, if the folder has one.
Result<void> read_chat_template(const std::string& folder, TokenizerSpec& spec) {
  const std::string processors = folder + "/chat_template.json";
  const auto processor = read_optional(processors);
  if (!processor) return std::unexpected(processor.error());
  if (const auto& value = *processor; value.has_value()) {
    auto text = JsonRef(*value, processors).get<std::string>("chat_template");
    if (!text) return std::unexpected(std::move(text.error()));
    spec.chat_template = std::move(*text);
  }
  auto chat_template = read_text_file(folder + "/chat_template.jinja", kMaxTemplateBytes);
  if (chat_template) spec.chat_template = std::move(*chat_template);
  if (!chat_template && chat_template.error().code != ErrorCode::not_found) return std::unexpected(std::move(chat_template.error()));
  auto tool_use = read_text_file(folder + "/additional_chat_templates/tool_use.jinja", kMaxTemplateBytes);
  if (tool_use) spec.chat_template = with_tool_use(std::move(spec.chat_template), std::move(*tool_use));
  if (!tool_use && tool_use.error().code != ErrorCode::not_found) return std::unexpected(std::move(tool_use.error()));
  return {};
}

}  // namespace

Result<TokenizerSpec> tokenizer_from_hf(const std::string& folder) {
  hf::Files files;
  struct Companion {
    std::string path;
    std::optional<JsonRef>* target;
    std::optional<boost::json::value> value;
  };
  std::array<Companion, 5> companions{{{folder + "/tokenizer.json", &files.tokenizer, {}},
                                       {folder + "/tokenizer_config.json", &files.config, {}},
                                       {folder + "/special_tokens_map.json", &files.special_tokens, {}},
                                       {folder + "/generation_config.json", &files.generation, {}},
                                       {folder + "/config.json", &files.model, {}}}};
  for (Companion& companion : companions) {
    auto value = read_optional(companion.path, companion.target == &files.tokenizer ? kLimits : kPythonJson);
    if (!value) return std::unexpected(std::move(value.error()));
    companion.value = std::move(*value);
    if (companion.value) companion.target->emplace(*companion.value, companion.path);
  }
  auto spec = files.tokenizer ? hf::read_tokenizer(files) : read_ranked(folder, files);
  if (!spec) return spec;
  if (auto read = read_chat_template(folder, *spec); !read) return std::unexpected(std::move(read.error()));
  return spec;
}

}  // namespace quire
