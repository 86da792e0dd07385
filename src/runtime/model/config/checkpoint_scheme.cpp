// Reads quantization_config as transformers, GPTQModel, AutoAWQ and compressed-tensors write it. Called once per model, when its headers
// are read. The names of the tensors determine which matrices are quantised (quantised_tensors.cpp), so lists of excluded modules are not
// read. An unknown setting that would change outputs is an error that names the setting.
#include "runtime/model/config/checkpoint_scheme.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <boost/json/object.hpp>
#include <boost/json/value.hpp>

#include "format/quote.h"
#include "runtime/model/config/config_fields.h"

namespace quire {
namespace {

using SchemeFields = ConfigFields<JsonRef>;

constexpr const char* kRemedy =
    "use a folder quantised with GPTQ, AWQ, compressed-tensors (int4, int8, float8, NVFP4, MXFP4) or fp8, the unquantised folder, or a "
    "GGUF file";

std::unexpected<Error> refuse(std::string field, std::string message) {
  return fail(ErrorCode::unsupported, std::move(field), std::move(message), kRemedy);
}

std::string path_of(const JsonRef& json, std::string_view key) {
  return json.path() + "." + std::string(key);
}

bool is_empty(const boost::json::value& value) {
  if (const auto* object = value.if_object()) return object->empty();
  if (const auto* array = value.if_array()) return array->empty();
  if (const auto* flag = value.if_bool()) return !*flag;
  return value.is_null();
}

// Returns an error if one of the keys is set: they change the meaning of the weights and are not implemented.
Result<void> refuse_if_set(const JsonRef& json, std::initializer_list<const char*> keys) {
  for (const char* key : keys)
    if (const auto value = json.find(key); value && !is_empty(value->value())) return refuse(value->path(), "is not implemented");
  return {};
}

Result<std::uint32_t> read_bits(const JsonRef& json, const char* key, bool may_be_8) {
  auto bits = json.get<std::uint32_t>(key);
  if (!bits) return bits;
  if (*bits == 4 || (may_be_8 && *bits == 8)) return bits;
  return refuse(path_of(json, key), fmt::format("{} bits are not implemented", *bits));
}

// Returns the group size in columns; 0 stands for one scale per row (-1 or null in the file).
Result<std::uint32_t> read_group(const JsonRef& json, std::int64_t fallback) {
  auto group = json.get_or<std::int64_t>("group_size", fallback);
  if (!group) return std::unexpected(std::move(group.error()));
  if (*group == -1) return 0;
  if (*group < 16 || *group % 16 != 0 || *group > (1 << 20))
    return refuse(path_of(json, "group_size"), fmt::format("{} is not a multiple of 16", *group));
  return static_cast<std::uint32_t>(*group);
}

// Checks GPTQModel's list of modules with separate settings ("+:" or no prefix) and of modules that are not quantised ("-:").
Result<void> check_dynamic(const JsonRef& json) {
  const auto dynamic = json.find("dynamic");
  if (!dynamic || is_empty(dynamic->value())) return {};
  const auto entries = dynamic->object();
  if (!entries) return std::unexpected(entries.error());
  for (const auto& [pattern, settings] : **entries)
    if (!std::string_view(pattern.data(), pattern.size()).starts_with("-:") && !is_empty(settings))
      return refuse(dynamic->path(),
                    fmt::format("separate settings for {} are not implemented", in_quotes({pattern.data(), pattern.size()})));
  return {};
}

Result<CheckpointScheme> read_gptq(const JsonRef& json) {
  CheckpointScheme scheme{.method = CheckpointMethod::gptq, .weights = {}};
  auto bits = read_bits(json, "bits", true);
  if (!bits) return std::unexpected(std::move(bits.error()));
  auto group = read_group(json, -1);
  if (!group) return std::unexpected(std::move(group.error()));
  if (auto known = check_dynamic(json); !known) return std::unexpected(std::move(known.error()));
  if (auto known = refuse_if_set(json, {"rotation"}); !known) return std::unexpected(std::move(known.error()));
  SchemeFields fields(json);
  const std::string older = fields.get_or<std::string>("format", "gptq");
  const std::string format = fields.get_or<std::string>("checkpoint_format", older);
  const std::string words = fields.get_or<std::string>("pack_dtype", "int32");
  scheme.reorders = fields.get_or<bool>("desc_act", false);
  scheme.weights.push_back({.bits = *bits, .has_zeros = !fields.get_or<bool>("sym", true), .group = *group});
  if (const auto& error = fields.error()) return std::unexpected(*error);
  const char* key = json.find("checkpoint_format") ? "checkpoint_format" : "format";
  if (format != "gptq" && format != "gptq_v2") return refuse(path_of(json, key), fmt::format("{} is not implemented", in_quotes(format)));
  if (words != "int32") return refuse(path_of(json, "pack_dtype"), fmt::format("{} is not implemented", in_quotes(words)));
  scheme.has_offset_zeros = format == "gptq";
  return scheme;
}

Result<CheckpointScheme> read_awq(const JsonRef& json) {
  auto bits = read_bits(json, "bits", false);
  if (!bits) return std::unexpected(std::move(bits.error()));
  auto group = read_group(json, 128);
  if (!group) return std::unexpected(std::move(group.error()));
  std::string version = "gemm";
  if (const auto field = json.find("version")) {
    auto text = field->as<std::string>();
    if (!text) return std::unexpected(std::move(text.error()));
    version = *text;
    for (char& c : version) c = c >= 'A' && c <= 'Z' ? static_cast<char>(c + ('a' - 'A')) : c;
  }
  if (version != "gemm") return refuse(path_of(json, "version"), fmt::format("{} is not implemented", in_quotes(version)));
  return CheckpointScheme{.method = CheckpointMethod::awq, .weights = {{.bits = *bits, .has_zeros = true, .group = *group}}};
}

// Reads one entry of config_groups. Its targets are not read, because the names of the tensors determine which matrices are quantised.
Result<CheckpointWeights> read_weights(const JsonRef& json) {
  SchemeFields fields(json);
  const std::string type = fields.get_or<std::string>("type", "int");
  const std::string strategy = fields.get_or<std::string>("strategy", json.find("group_size") ? "group" : "tensor");
  const bool is_symmetric = fields.get_or<bool>("symmetric", true);
  if (const auto& error = fields.error()) return std::unexpected(*error);
  if (type != "int" && type != "float") return refuse(path_of(json, "type"), fmt::format("{} is not implemented", in_quotes(type)));
  constexpr std::array kStrategies{"tensor", "channel", "group", "tensor_group", "block"};
  if (std::ranges::find(kStrategies, strategy) == kStrategies.end())
    return refuse(path_of(json, "strategy"), fmt::format("{} is not implemented", in_quotes(strategy)));
  auto bits = read_bits(json, "num_bits", true);
  if (!bits) return std::unexpected(std::move(bits.error()));
  const bool is_float = type == "float";
  CheckpointWeights weights{.bits = *bits, .is_float = is_float, .has_zeros = !is_symmetric};
  if (!strategy.ends_with("group")) return weights;
  auto group = read_group(json, -1);
  if (!group) return std::unexpected(std::move(group.error()));
  weights.group = *group;
  return weights;
}

Result<CheckpointScheme> read_compressed(const JsonRef& json) {
  CheckpointScheme scheme{.method = CheckpointMethod::compressed_tensors, .weights = {}};
  if (auto known = refuse_if_set(json, {"transform_config"}); !known) return std::unexpected(std::move(known.error()));
  auto format = json.get_or<std::string>("format", "dense");
  if (!format) return std::unexpected(std::move(format.error()));
  constexpr std::array kFormats{"pack-quantized",       "int-quantized",        "float-quantized", "naive-quantized",
                                "nvfp4-pack-quantized", "mxfp4-pack-quantized", "mixed-precision"};
  if (std::ranges::find(kFormats, *format) == kFormats.end())
    return refuse(path_of(json, "format"), fmt::format("{} is not implemented", in_quotes(*format)));
  if (const auto sparsity = json.find("sparsity_config"); sparsity && !is_empty(sparsity->value())) {
    auto sparse = sparsity->get_or<std::string>("format", "dense");
    if (!sparse) return std::unexpected(std::move(sparse.error()));
    if (*sparse != "dense") return refuse(path_of(*sparsity, "format"), fmt::format("{} is not implemented", in_quotes(*sparse)));
  }
  const auto groups = json.at("config_groups");
  if (!groups) return std::unexpected(groups.error());
  const auto entries = groups->object();
  if (!entries) return std::unexpected(entries.error());
  for (const auto& [name, ignored] : **entries) {
    const auto group = groups->at({name.data(), name.size()});
    if (!group) return std::unexpected(group.error());
    scheme.has_activations |= group->find("input_activations").has_value();
    const auto described = group->find("weights");
    if (!described) continue;
    auto weights = read_weights(*described);
    if (!weights) return std::unexpected(std::move(weights.error()));
    scheme.weights.push_back(*weights);
  }
  if (scheme.weights.empty()) return groups->error("describes no weights", "use the config that belongs to the weights");
  return scheme;
}

Result<CheckpointScheme> read_fp8(const JsonRef& json) {
  auto format = json.get_or<std::string>("fmt", "e4m3");
  if (!format) return std::unexpected(std::move(format.error()));
  if (*format != "e4m3") return refuse(path_of(json, "fmt"), fmt::format("{} is not implemented", in_quotes(*format)));
  return CheckpointScheme{.method = CheckpointMethod::fp8, .weights = {{.bits = 8, .is_float = true}}, .has_activations = true};
}

}  // namespace

Result<CheckpointScheme> checkpoint_scheme(const JsonRef& config) {
  const auto json = config.find("quantization_config");
  if (!json) return CheckpointScheme{};
  auto method = json->get<std::string>("quant_method");
  if (!method) return std::unexpected(std::move(method.error()));
  if (*method == "gptq") return read_gptq(*json);
  if (*method == "awq") return read_awq(*json);
  if (*method == "compressed-tensors") return read_compressed(*json);
  if (*method == "mxfp4")
    return CheckpointScheme{.method = CheckpointMethod::mxfp4, .weights = {{.bits = 4, .is_float = true, .group = 32}}};
  if (*method == "fp8" || *method == "fbgemm_fp8") return read_fp8(*json);
  return refuse(path_of(*json, "quant_method"), fmt::format("{} is not implemented", in_quotes(*method)));
}

std::string describe(const CheckpointScheme& scheme) {
  constexpr std::array kNames{"", "GPTQ", "AWQ", "compressed-tensors", "fp8", "MXFP4"};
  std::string text = kNames[static_cast<std::size_t>(scheme.method)];
  for (const CheckpointWeights& weights : scheme.weights) {
    text += weights.is_float ? fmt::format(", floats of {} bits", weights.bits)
                             : fmt::format(", {} bits{}", weights.bits, weights.has_zeros ? " with zero points" : "");
    if (weights.group > 0) text += fmt::format(" in groups of {}", weights.group);
  }
  if (scheme.reorders) text += ", ordered by activations";
  return text;
}

}  // namespace quire
