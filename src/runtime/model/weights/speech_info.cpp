// Reads how Whisper's tokens are sampled. Called once per model, when its headers are read.
#include "runtime/model/weights/speech_info.h"

#include <filesystem>
#include <string_view>
#include <utility>

#include "format/json.h"

namespace quire {
namespace {

constexpr std::size_t kMaxTokens = 4096;

std::vector<TokenId> token_list(const JsonRef& config, std::string_view key, std::uint32_t vocab_size) {
  std::vector<TokenId> tokens;
  const auto list = config.find(key);
  const auto elements = list ? list->elements() : Result<std::vector<JsonRef>>();
  if (!elements || elements->size() > kMaxTokens) return tokens;
  for (const JsonRef& element : *elements)
    if (const auto id = element.as<std::int64_t>(); id && *id >= 0 && std::cmp_less(*id, vocab_size))
      tokens.push_back(static_cast<TokenId>(*id));
  return tokens;
}

}  // namespace

SpeechInfo speech_info(const std::string& folder, std::uint32_t vocab_size) {
  SpeechInfo info;
  for (const char* name : {"generation_config.json", "config.json"}) {
    const auto json = read_json_file((std::filesystem::path(folder) / name).string(), kPythonJson);
    if (!json) continue;
    const JsonRef config(*json, name);
    if (config.find("suppress_tokens") == std::nullopt && config.find("begin_suppress_tokens") == std::nullopt) continue;
    info.suppressed = token_list(config, "suppress_tokens", vocab_size);
    info.not_first = token_list(config, "begin_suppress_tokens", vocab_size);
    info.max_first_time = config.get_or<std::uint32_t>("max_initial_timestamp_index", info.max_first_time).value_or(info.max_first_time);
    info.is_multilingual = config.get_optional<bool>("is_multilingual").value_or(std::nullopt);
    break;
  }
  return info;
}

}  // namespace quire
