// Reads adapter_config.json of a PEFT folder. Called on the thread that loads the adapter, while steps may run. The file is not trusted: a
// field that changes the adapter's result and is not supported is an error that names the field.
#include "runtime/model/weights/adapter_config.h"

#include <fmt/format.h>

#include <algorithm>
#include <boost/json/array.hpp>
#include <cmath>

#include "format/quote.h"

namespace quire {
namespace {

std::unexpected<Error> refuse(const JsonRef& field, const char* what) {
  return fail(ErrorCode::unsupported, field.path(), what, "use a plain LoRA adapter (pairs of low-rank matrices for linear layers)");
}

// Returns whether a value is true, or not empty.
bool is_set(const boost::json::value& value) {
  if (const bool* flag = value.if_bool()) return *flag;
  if (const auto* array = value.if_array()) return !array->empty();
  if (const auto* object = value.if_object()) return !object->empty();
  if (const auto* text = value.if_string()) return !text->empty();
  return !value.is_null();
}

struct Refused {
  const char* field;
  const char* what;
};
constexpr Refused kRefused[] = {
    {"use_dora", "DoRA adapters are not supported"},
    {"use_qalora", "QALoRA adapters are not supported"},
    {"lora_bias", "adapters with biases are not supported"},
    {"fan_in_fan_out", "transposed weights are not supported"},
    {"modules_to_save", "adapters that replace whole matrices are not supported"},
    {"trainable_token_indices", "adapters that replace embedding rows are not supported"},
    {"target_parameters", "adapters for expert weights stored as one parameter are not supported"},
    {"layer_replication", "adapters that replicate layers are not supported"},
    {"alora_invocation_tokens", "adapters that are activated by tokens of a prompt are not supported"},
};

Result<void> check_kind(const JsonRef& config) {
  auto kind = config.get<std::string>("peft_type");
  if (!kind) return std::unexpected(std::move(kind.error()));
  if (*kind != "LORA")
    return fail(ErrorCode::unsupported, config.path() + ": peft_type", fmt::format("is {}", in_quotes(*kind)),
                "use an adapter of type LORA");
  auto bias = config.get_or<std::string>("bias", "none");
  if (!bias) return std::unexpected(std::move(bias.error()));
  if (*bias != "none")
    return fail(ErrorCode::unsupported, config.path() + ": bias",
                fmt::format("is {}, but adapters with biases are not supported", in_quotes(*bias)), "train the adapter with bias=\"none\"");
  for (const Refused& refused : kRefused)
    if (const auto field = config.find(refused.field); field && is_set(field->value())) return refuse(*field, refused.what);
  return {};
}

// Returns whether the key is a plain name. PEFT uses keys as regular expressions for the end of a module's name; a plain name matches
// itself.
bool is_plain(std::string_view key) {
  return !key.empty() && std::ranges::all_of(key, [](char c) {
    return c == '_' || c == '.' || (c >= '0' && c <= '9') || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z');
  });
}

template <class T>
Result<std::vector<std::pair<std::string, T>>> read_pattern(const JsonRef& config, const char* name) {
  std::vector<std::pair<std::string, T>> read;
  const auto pattern = config.find(name);
  if (!pattern) return read;
  const auto object = pattern->object();
  if (!object) return std::unexpected(object.error());
  for (const auto& member : **object) {
    if (!is_plain(member.key())) return refuse(*pattern, "contains a regular expression, but only plain module names are supported");
    auto value = pattern->get<T>(member.key());
    if (!value) return std::unexpected(std::move(value.error()));
    read.emplace_back(member.key(), *value);
  }
  return read;
}

bool ends_with_module(std::string_view module, std::string_view key) {
  return module.ends_with(key) && (module.size() == key.size() || module[module.size() - key.size() - 1] == '.');
}

template <class T>
T override_or(const std::vector<std::pair<std::string, T>>& own, std::string_view module, T otherwise) {
  const auto found = std::ranges::find_if(own, [&](const auto& one) { return ends_with_module(module, one.first); });
  return found == own.end() ? otherwise : found->second;
}

}  // namespace

std::uint32_t AdapterConfig::rank_of(std::string_view module) const {
  return override_or(ranks, module, rank);
}

double AdapterConfig::scale_of(std::string_view module) const {
  const double r = rank_of(module);
  return override_or(alphas, module, alpha) / (rank_stabilized ? std::sqrt(r) : r);
}

Result<AdapterConfig> read_adapter_config(const JsonRef& config) {
  if (Result<void> checked = check_kind(config); !checked) return std::unexpected(std::move(checked.error()));
  auto rank = config.get<std::uint32_t>("r");
  if (!rank) return std::unexpected(std::move(rank.error()));
  auto alpha = config.get_or<double>("lora_alpha", 8.0);
  if (!alpha) return std::unexpected(std::move(alpha.error()));
  auto stabilized = config.get_or<bool>("use_rslora", false);
  if (!stabilized) return std::unexpected(std::move(stabilized.error()));
  auto ranks = read_pattern<std::uint32_t>(config, "rank_pattern");
  if (!ranks) return std::unexpected(std::move(ranks.error()));
  auto alphas = read_pattern<double>(config, "alpha_pattern");
  if (!alphas) return std::unexpected(std::move(alphas.error()));
  const bool is_positive = *rank > 0 && std::ranges::all_of(*ranks, [](const auto& own) { return own.second > 0; });
  if (!is_positive) return fail(ErrorCode::corrupt, config.path() + ": r", "is 0", "use the config that belongs to the weights");
  return AdapterConfig{*rank, *alpha, *stabilized, *std::move(ranks), *std::move(alphas)};
}

}  // namespace quire
