// Reads the rotary embedding from the config of a Hugging Face folder. Called while the config is read (config_hf.cpp), on the same thread.
// An unknown kind of scaling is an error that names the kind, because wrong angles would degrade outputs without an error.
#include "runtime/model/config/config_rope.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <string>
#include <vector>

#include "format/quote.h"

namespace quire {
namespace {

std::vector<float> read_factors(const JsonRef& scaling, std::string_view key, JsonFields& fields) {
  std::vector<float> factors;
  const auto list = scaling.at(key);
  const auto elements = list ? list->elements() : std::unexpected(list.error());
  if (!elements) {
    fields.refuse(elements.error());
    return factors;
  }
  for (const JsonRef& element : *elements) {
    const auto factor = element.as<float>();
    if (!factor) fields.refuse(factor.error());
    factors.push_back(factor.value_or(0.0F));
  }
  return factors;
}

// Reads LongRoPE. The original context is a member of the config or of the scaling. If both are missing, it is the family's default, or
// else the whole context.
void read_longrope(const HfTraits& hf, const JsonRef& scaling, JsonFields& fields, JsonFields& rope, ModelConfig& config) {
  config.rope_scaling = RopeScaling::longrope;
  config.rope_short_factors = read_factors(scaling, "short_factor", fields);
  config.rope_long_factors = read_factors(scaling, "long_factor", fields);
  for (const char* key : {"short_mscale", "long_mscale"})
    if (scaling.find(key)) refuse_key(fields, fmt::format("rope_scaling.{}", key), "is not implemented", "use a model without it");
  const double context = config.context_length;
  double factor = rope.get_or<double>("factor", 1.0);
  auto original = fields.get_optional<double>("original_max_position_embeddings");
  if (!original) original = rope.get_optional<double>("original_max_position_embeddings");
  if (!original && hf.longrope_context > 0.0) original = hf.longrope_context;
  if (original) factor = context / *original;
  config.rope_original_context = original.value_or(context);
  const double usual = factor > 1.0 ? std::sqrt(1.0 + std::log(factor) / std::log(config.rope_original_context)) : 1.0;
  config.rope_attention_factor = static_cast<float>(rope.get_or<double>("attention_factor", usual));
}

// Reads YaRN like transformers' _compute_yarn_parameters. A value that is missing or 0 gets its default.
void read_yarn(JsonFields& rope, ModelConfig& config) {
  config.rope_scaling = RopeScaling::yarn;
  config.rope_factor = rope.need<double>("factor");
  const auto given = [&rope](const char* key, double usual) {
    const double value = rope.get_optional<double>(key).value_or(0.0);
    return value == 0.0 ? usual : value;
  };
  config.rope_original_context = given("original_max_position_embeddings", config.context_length);
  config.rope_beta_fast = given("beta_fast", 32.0);
  config.rope_beta_slow = given("beta_slow", 1.0);
  config.rope_truncates = rope.get_or<bool>("truncate", !rope.is_null("truncate"));
  const double some = given("mscale", 0.0), all = given("mscale_all_dim", 0.0);
  const bool both = some != 0.0 && all != 0.0;
  const double usual = yarn_scale(config.rope_factor, both ? some : 1.0) / (both ? yarn_scale(config.rope_factor, all) : 1.0);
  config.rope_attention_factor = static_cast<float>(rope.get_optional<double>("attention_factor").value_or(usual));
}

void read_sections(const JsonRef& scaling, JsonFields& fields, ModelConfig& config) {
  const auto list = scaling.at("mrope_section");
  const auto elements = list ? list->elements() : std::unexpected(list.error());
  if (!elements) return fields.refuse(elements.error());
  if (elements->size() != config.rope_sections.size())
    return refuse_key(fields, "rope_scaling.mrope_section", fmt::format("has {} entries", elements->size()),
                      "use a model with three entries");
  for (std::size_t i = 0; i < elements->size(); ++i) {
    const auto pairs = (*elements)[i].as<std::uint32_t>();
    if (!pairs) fields.refuse(pairs.error());
    config.rope_sections[i] = pairs.value_or(0);
  }
}

void read_rope_scaling(const ModelFamily& family, const JsonRef& scaling, JsonFields& fields, ModelConfig& config) {
  JsonFields rope(scaling);
  auto type = rope.get_optional<std::string>("rope_type");
  if (!type) type = rope.get_or<std::string>("type", "default");
  if (family.has_rope_sections) {
    read_sections(scaling, fields, config);
    if (*type == "mrope") type = "default";
  }
  config.rope_theta = rope.get_or<double>("rope_theta", config.rope_theta);
  const bool old_longrope = family.hf.longrope_context > 0.0 && (*type == "su" || *type == "yarn");
  if (*type == "linear") {
    config.rope_scaling = RopeScaling::linear;
    config.rope_factor = rope.need<double>("factor");
  } else if (*type == "llama3") {
    config.rope_scaling = RopeScaling::llama3;
    config.rope_factor = rope.need<double>("factor");
    config.rope_low_freq_factor = rope.need<double>("low_freq_factor");
    config.rope_high_freq_factor = rope.need<double>("high_freq_factor");
    config.rope_original_context = rope.need<double>("original_max_position_embeddings");
  } else if (*type == "longrope" || old_longrope) {
    read_longrope(family.hf, scaling, fields, rope, config);
  } else if (*type == "yarn") {
    read_yarn(rope, config);
  } else if (*type == "dynamic" && family.hf.has_dynamic_base) {
    // `alpha` changes the base for every context length. config.check() ensures that a head has at least two pairs.
    const double pairs = std::max(config.head_dim, 4U);
    config.rope_theta *= std::pow(rope.need<double>("alpha"), pairs / (pairs - 2.0));
  } else if (*type != "default") {
    refuse_key(fields, "rope_scaling.rope_type", fmt::format("{} is not implemented", in_quotes(*type)),
               "use a model with linear, llama3, yarn, longrope or no RoPE scaling");
  }
  if (const auto& error = rope.error()) fields.refuse(*error);
}

// Reads the share of a head that rotates. `usual` is HfTraits::rotated_share.
void read_rotated_share(JsonFields& fields, std::string_view where, double usual, ModelConfig& config) {
  const auto share = fields.get_or<double>("partial_rotary_factor", usual > 0.0 ? usual : 1.0);
  if (share == 1.0) return;
  if (usual > 0.0 && share > 0.0 && share < 1.0)
    config.rotary_dim = static_cast<std::uint32_t>(config.head_dim * share);
  else
    refuse_key(fields, fmt::format("{}partial_rotary_factor", where), fmt::format("{} is not implemented", share),
               "use a model that applies RoPE to all dimensions of a head");
}

}  // namespace

double yarn_scale(double factor, double multiplier) {
  return factor <= 1.0 ? 1.0 : 0.1 * multiplier * std::log(factor) + 1.0;
}

void read_rope(const ModelFamily& family, const JsonRef& json, JsonFields& fields, ModelConfig& config) {
  config.rotary_dim = config.head_dim;
  config.rope_style = family.hf.rope_style;
  read_rotated_share(fields, "", family.hf.rotated_share, config);
  // transformers 5 calls the object rope_parameters and moves rope_theta and partial_rotary_factor into it.
  for (const char* key : {"rope_scaling", "rope_parameters"}) {
    if (const auto scaling = json.find(key)) {
      // If kinds of layers have different settings, there is one object per kind.
      const JsonRef own = scaling->find("full_attention").value_or(*scaling);
      JsonFields inside(own);
      read_rotated_share(inside, fmt::format("{}.", key), family.hf.rotated_share, config);
      if (const auto& error = inside.error()) fields.refuse(*error);
      read_rope_scaling(family, own, fields, config);
    }
  }
  if (family.has_rope_sections && !config.has_rope_sections())
    refuse_key(fields, "rope_scaling.mrope_section", "is missing", "use the config that belongs to the weights");
}

}  // namespace quire
