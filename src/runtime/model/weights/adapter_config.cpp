// Reads adapter_config.json of a PEFT folder. Called when an adapter is loaded, beside steps, on the thread that wants it. The file comes
// from anywhere: a field that would change what the adapter computes, and is not served, is refused by its name and never passed over.
#include "runtime/model/weights/adapter_config.h"

#include <fmt/format.h>

#include <algorithm>
#include <boost/json/array.hpp>
#include <cmath>

#include "format/quote.h"

namespace quire {
namespace {

std::unexpected<Error> refuse(const JsonRef& field, const char* what) {
  return fail(ErrorCode::unsupported, field.path(), what, "use a plain LoRA adapter: pairs of matrices for linear layers");
}

// Switched on, or not empty.
bool says_something(const boost::json::value& value) {
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
    {"use_dora", "DoRA scales whole columns of the weights"},
    {"use_qalora", "QALoRA pools its inputs"},
    {"lora_bias", "biases of adapters are not served"},
    {"fan_in_fan_out", "weights that are kept the other way round are not served"},
    {"modules_to_save", "whole matrices in place of the model's are not served"},
    {"trainable_token_indices", "rows of the embeddings in place of the model's are not served"},
    {"target_parameters", "adapters of experts that are kept as one parameter are not served"},
    {"layer_replication", "layers that occur several times are not served"},
    {"alora_invocation_tokens", "adapters that begin in the middle of a prompt are not served"},
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
    return fail(ErrorCode::unsupported, config.path() + ": bias", fmt::format("is {}: biases of adapters are not served", in_quotes(*bias)),
                "train it with bias=\"none\"");
  for (const Refused& refused : kRefused)
    if (const auto field = config.find(refused.field); field && says_something(field->value())) return refuse(*field, refused.what);
  return {};
}

// PEFT takes a key as a regular expression for the end of a module's name: a plain name stands for itself.
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
    if (!is_plain(member.key())) return refuse(*pattern, "holds a regular expression; only plain names of modules are served");
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
T own_or(const std::vector<std::pair<std::string, T>>& own, std::string_view module, T otherwise) {
  const auto found = std::ranges::find_if(own, [&](const auto& one) { return ends_with_module(module, one.first); });
  return found == own.end() ? otherwise : found->second;
}

}  // namespace

std::uint32_t AdapterConfig::rank_of(std::string_view module) const {
  return own_or(ranks, module, rank);
}

double AdapterConfig::scale_of(std::string_view module) const {
  const double r = rank_of(module);
  return own_or(alphas, module, alpha) / (rank_stabilized ? std::sqrt(r) : r);
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
