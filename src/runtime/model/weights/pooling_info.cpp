// Reads how a model computes embeddings of texts: sentence-transformers' modules.json and the files that it names, config.json, or keys of
// a GGUF file. Called once per model, when its headers are read. If files are invalid, pooling requests are refused with the reason, and
// all other requests are served.
#include "runtime/model/weights/pooling_info.h"

#include <fmt/format.h>

#include <array>
#include <filesystem>
#include <optional>
#include <string_view>
#include <utility>

#include "format/json.h"
#include "format/quote.h"

namespace quire {
namespace {

namespace fs = std::filesystem;

// Values of llama.cpp's enumeration.
enum class GgufPooling : std::uint8_t { none, mean, cls, last, rank };

// Prompt of Qwen3-Reranker, the only supported family that scores a pair with one yes-or-no token.
constexpr const char* kPairTemplate =
    "<|im_start|>system\nJudge whether the Document meets the requirements based on the Query and the Instruct provided. Note that the "
    "answer can only be \"yes\" or \"no\".<|im_end|>\n<|im_start|>user\n<Instruct>: Given a web search query, retrieve relevant passages "
    "that answer the query\n<Query>: {query}\n<Document>: {document}<|im_end|>\n<|im_start|>assistant\n<think>\n\n</think>\n\n";

void set_rerank_tokens(PoolingInfo& info, std::string no, std::string yes) {
  info.no_token = std::move(no);
  info.yes_token = std::move(yes);
  info.pair_template = kPairTemplate;
}

std::optional<PoolingKind> pooling_kind_from_mode(std::string_view name) {
  constexpr std::array<std::pair<std::string_view, PoolingKind>, 8> kNames{{{"cls", PoolingKind::first},
                                                                            {"cls_token", PoolingKind::first},
                                                                            {"mean", PoolingKind::mean},
                                                                            {"mean_tokens", PoolingKind::mean},
                                                                            {"last", PoolingKind::last},
                                                                            {"lasttoken", PoolingKind::last},
                                                                            {"last_token", PoolingKind::last},
                                                                            {"eos", PoolingKind::last}}};
  for (const auto& [known, kind] : kNames)
    if (known == name) return kind;
  return std::nullopt;
}

// Reads the pooling mode. Older files have a switch per mode; newer files have the name of the mode.
void read_pooling_config(const fs::path& path, PoolingInfo& info) {
  const auto json = read_json_file(path.string(), kPythonJson);
  if (!json) {
    info.unsupported = json.error().to_string();
    return;
  }
  const JsonRef config(*json, path.filename().string());
  std::string chosen = config.get_or<std::string>("pooling_mode", "").value_or("");
  for (const auto& member : json->is_object() ? json->get_object() : boost::json::object()) {
    constexpr std::string_view kSwitch = "pooling_mode_";
    const std::string_view key(member.key().data(), member.key().size());
    if (!key.starts_with(kSwitch) || !member.value().is_bool() || !member.value().get_bool()) continue;
    if (!chosen.empty()) chosen += '+';
    chosen += key.substr(kSwitch.size());
  }
  if (const auto kind = pooling_kind_from_mode(chosen))
    info.kind = *kind;
  else
    info.unsupported = fmt::format("{} requires pooling {}, which is not implemented", path.string(), in_quotes(chosen));
}

// Reads the modules. The type of each module is the name of a Python class.
void read_modules(const fs::path& folder, PoolingInfo& info) {
  std::error_code ignored;
  const fs::path path = folder / "modules.json";
  if (!fs::exists(path, ignored)) return;
  const auto json = read_json_file(path.string(), kPythonJson);
  const auto modules = json ? JsonRef(*json, "modules.json").elements() : std::unexpected(json.error());
  if (!modules) {
    info.unsupported = modules.error().to_string();
    return;
  }
  info.normalize = false;
  for (const JsonRef& module : *modules) {
    const std::string type = module.get_or<std::string>("type", "").value_or("");
    if (type.ends_with(".Normalize")) info.normalize = true;
    if (type.ends_with(".Pooling"))
      read_pooling_config(folder / module.get_or<std::string>("path", "1_Pooling").value_or("1_Pooling") / "config.json", info);
    if (type.ends_with(".Dense")) info.unsupported = "modules.json requires a dense layer after the pooling, which is not implemented";
  }
}

// Reads keys with vLLM's names, which users of vLLM set by hand (--hf-overrides).
void read_overrides(const JsonRef& config, PoolingInfo& info) {
  info.is_matryoshka = config.get_or<bool>("is_matryoshka", false).value_or(false);
  if (const auto sizes = config.find("matryoshka_dimensions")) {
    for (const JsonRef& size : sizes->elements().value_or(std::vector<JsonRef>{}))
      if (const auto number = size.as<std::uint32_t>()) info.sizes.push_back(*number);
    info.is_matryoshka |= !info.sizes.empty();
  }
  const auto tokens = config.find("classifier_from_token");
  const auto names = tokens ? tokens->elements() : Result<std::vector<JsonRef>>(std::vector<JsonRef>{});
  if (!names || names->size() != 2) return;
  const auto no = (*names)[0].as<std::string>(), yes = (*names)[1].as<std::string>();
  if (no && yes) set_rerank_tokens(info, *no, *yes);
}

}  // namespace

PoolingInfo pooling_info(const std::string& folder) {
  PoolingInfo info;
  if (const auto json = read_json_file((fs::path(folder) / "config.json").string(), kPythonJson))
    read_overrides(JsonRef(*json, "config.json"), info);
  read_modules(folder, info);
  return info;
}

PoolingInfo pooling_info(const GgufFile& file, const std::string& path) {
  PoolingInfo info;
  const std::string architecture = file.get<std::string>("general.architecture").value_or("");
  for (const std::string& key : {architecture + ".pooling_type", std::string("general.pooling_type")}) {
    const auto type = file.get_optional<std::uint32_t>(key).value_or(std::nullopt);
    if (!type) continue;
    if (*type == static_cast<std::uint32_t>(GgufPooling::mean)) info.kind = PoolingKind::mean;
    if (*type == static_cast<std::uint32_t>(GgufPooling::cls)) info.kind = PoolingKind::first;
    if (*type == static_cast<std::uint32_t>(GgufPooling::rank)) set_rerank_tokens(info, "no", "yes");
    if (*type > static_cast<std::uint32_t>(GgufPooling::rank)) info.unsupported = fmt::format("{} is {}, which is unknown", key, *type);
    break;
  }
  if (!info.pair_template.empty()) {
    auto own = file.get_optional<std::string>("tokenizer.chat_template.rerank").value_or(std::nullopt);
    if (own && own->find("{query}") != std::string::npos && own->find("{document}") != std::string::npos) info.pair_template = *own;
  }
  read_modules(fs::path(path).parent_path(), info);
  return info;
}

}  // namespace quire
