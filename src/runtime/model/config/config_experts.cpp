// Reads the part of config.json that describes a mixture of experts. Called once per model, when its headers are read; any thread. Names
// and defaults follow transformers' model classes.
#include "runtime/model/config/config_experts.h"

#include <fmt/format.h>

#include <algorithm>
#include <string>
#include <utility>

#include "format/quote.h"

namespace quire {
namespace {

// Sets the dense layers of Qwen's MoE models: the listed layers, and all layers but every `decoder_sparse_step`-th.
void read_dense_layers(const JsonRef& json, JsonFields& fields, ModelConfig& config) {
  const auto step = fields.get_or<std::uint32_t>("decoder_sparse_step", 1);
  if (step == 0)
    refuse_key(fields, "decoder_sparse_step", "is 0, so no layer would be a mixture-of-experts layer",
               "use the config that belongs to the weights");
  config.dense_layers.assign(std::min(config.num_layers, kMaxLayers), false);
  for (std::uint32_t i = 0; step > 0 && i < config.dense_layers.size(); ++i) config.dense_layers[i] = (i + 1) % step != 0;
  const auto listed = json.find("mlp_only_layers");
  if (!listed) return;
  const auto layers = listed->elements();
  if (!layers) return fields.refuse(layers.error());
  for (const JsonRef& entry : *layers) {
    const auto layer = entry.as<std::uint32_t>();
    if (!layer)
      fields.refuse(layer.error());
    else if (*layer < config.dense_layers.size())
      config.dense_layers[*layer] = true;
  }
}

// Returns the number of experts. For some families, transformers 5 writes the number under the other of the two keys (attribute_map).
std::uint32_t read_num_experts(const JsonRef& json, JsonFields& fields, bool is_local) {
  const char* const key = is_local ? "num_local_experts" : "num_experts";
  const char* const other = is_local ? "num_experts" : "num_local_experts";
  return fields.need<std::uint32_t>(!json.find(key) && json.find(other) ? other : key);
}

// Reads a number, or a list with one number per layer. All numbers of the list must be equal.
std::uint32_t read_same(const JsonRef& json, const char* key, JsonFields& fields) {
  const auto value = json.find(key);
  const auto list = value ? value->elements() : std::unexpected(Error{});
  if (!list || list->empty()) return fields.need<std::uint32_t>(key);
  const auto first = list->front().as<std::uint32_t>();
  if (!first) fields.refuse(first.error());
  for (const JsonRef& entry : *list)
    if (entry.as<std::uint32_t>().value_or(0) != first.value_or(0))
      refuse_key(fields, key, "a different value per layer is not implemented", "use a model with the same value in all layers");
  return first.value_or(0);
}

// Reads the router. topk_method is greedy or group_limited_greedy (DeepSeek-V2), or noaux_tc (all others). dots.llm1 also writes it as
// scoring_func.
void read_router(const ExpertTraits& traits, JsonFields& fields, ModelConfig& config) {
  const char* usual_method = traits.is_sigmoid ? "noaux_tc" : "greedy";
  const auto method = fields.get_or<std::string>("topk_method", usual_method);
  const bool in_groups = traits.is_sigmoid || method == "group_limited_greedy";
  if (method != usual_method && (traits.is_sigmoid || !in_groups))
    refuse_key(fields, "topk_method", fmt::format("{} is not implemented", in_quotes(method)), "use a model with another router");
  const char* usual_scores = traits.is_sigmoid ? "sigmoid" : "softmax";
  const auto scores = fields.get_or<std::string>("scoring_func", usual_scores);
  if (scores != usual_scores && (!traits.scores_are_method || scores != usual_method))
    refuse_key(fields, "scoring_func", fmt::format("{} is not implemented", in_quotes(scores)), "use a model with another router");
  config.expert_scoring = traits.is_sigmoid ? ExpertScoring::sigmoid : ExpertScoring::softmax;
  config.expert_choice_bias = traits.is_sigmoid;
  config.normalize_experts = fields.get_or<bool>("norm_topk_prob", traits.hf_normalizes);
  config.expert_scale = fields.get_or<float>("routed_scaling_factor", traits.scale);
  if (!in_groups) return;
  const auto groups = fields.get_or<std::uint32_t>("n_group", traits.groups);
  if (groups == 1) return;
  config.num_expert_groups = groups;
  config.groups_per_token = fields.get_or<std::uint32_t>("topk_group", traits.groups_per_token);
}

}  // namespace

void read_plain_experts(const ExpertTraits& traits, const JsonRef& json, JsonFields& fields, ModelConfig& config) {
  config.num_experts = read_num_experts(json, fields, traits.hf_is_local);
  config.experts_per_token = fields.need<std::uint32_t>("num_experts_per_tok");
  config.expert_size = traits.hf_has_width ? fields.need<std::uint32_t>("moe_intermediate_size") : config.intermediate_size;
  if (traits.has_shared_gate) config.shared_expert_size = fields.need<std::uint32_t>("shared_expert_intermediate_size");
  config.normalize_experts = traits.hf_is_local || fields.get_or<bool>("norm_topk_prob", traits.hf_normalizes);
  config.expert_bias = traits.has_bias;
  if (traits.hf_has_width) read_dense_layers(json, fields, config);
  if (fields.get_optional<double>("clip_qkv"))
    refuse_key(fields, "clip_qkv", "clipping of queries, keys and values is not implemented", "use a model without it");
  if (traits.hf_has_width && fields.get_or<bool>("use_sliding_window", false) && !json.find("layer_types"))
    refuse_key(fields, "use_sliding_window", "is set, but the config does not say which layers have a sliding window",
               "list these layers in layer_types");
}

// Reads the experts of Granite, and the shared expert that some Granite models have.
void read_granite_experts(const ExpertTraits& traits, const JsonRef& json, JsonFields& fields, ModelConfig& config) {
  read_plain_experts(traits, json, fields, config);
  config.shared_expert_size = fields.get_or<std::uint32_t>("shared_intermediate_size", 0);
  if (config.shared_expert_size == 0) return;
  config.fused_shared_gate_up = true;
  config.has_shared_expert_gate = false;
  config.tensor_names = &kGraniteNames;
}

// Reads the experts of ERNIE 4.5: softmax scores, a bias for the choice of experts, and some dense layers.
void read_ernie_experts(const ExpertTraits& traits, const JsonRef& /*json*/, JsonFields& fields, ModelConfig& config) {
  config.num_experts = fields.get_or<std::uint32_t>("moe_num_experts", 64);
  config.experts_per_token = fields.get_or<std::uint32_t>("moe_k", 6);
  config.expert_size = fields.get_or<std::uint32_t>("moe_intermediate_size", 1536);
  config.shared_expert_size = fields.get_or<std::uint32_t>("moe_num_shared_experts", 2) * config.expert_size;
  config.expert_choice_bias = config.normalize_experts = true;
  config.expert_sum_floor = fields.get_or<float>("moe_norm_min", traits.sum_floor);
  config.has_shared_expert_gate = false;
  const auto first = fields.get_or<std::uint32_t>("moe_layer_start_index", 1), step = fields.get_or<std::uint32_t>("moe_layer_interval", 1);
  const auto last = fields.get_or<std::int64_t>("moe_layer_end_index", -1);
  if (step == 0)
    refuse_key(fields, "moe_layer_interval", "is 0, so no layer would be a mixture-of-experts layer",
               "use the config that belongs to the weights");
  config.dense_layers.assign(std::min(config.num_layers, kMaxLayers), false);
  for (std::uint32_t i = 0; i < config.dense_layers.size(); ++i)
    config.dense_layers[i] = i < first || (last >= 0 && std::cmp_greater(i, last)) || (i + 1) % std::max(step, 1U) != 0;
}

// Reads the experts of Hunyuan. Each expert and the shared expert are as wide as `intermediate_size`.
void read_hunyuan_experts(const ExpertTraits& /*traits*/, const JsonRef& json, JsonFields& fields, ModelConfig& config) {
  config.num_experts = read_same(json, "num_experts", fields);
  config.experts_per_token = read_same(json, "moe_topk", fields);
  config.expert_size = config.shared_expert_size = config.intermediate_size;
  config.normalize_experts = true;
  config.has_shared_expert_gate = false;
  if (json.find("moe_intermediate_size") && read_same(json, "moe_intermediate_size", fields) != config.intermediate_size)
    refuse_key(fields, "moe_intermediate_size", "differs from intermediate_size", "use a model in which the two values are equal");
  if (json.find("num_shared_expert") && read_same(json, "num_shared_expert", fields) != 1)
    refuse_key(fields, "num_shared_expert", "other than 1 is not implemented", "use a model with one");
}

// Reads the experts of LFM2: sigmoid scores, an optional bias for the choice of experts, and dense first layers.
void read_lfm2_experts(const ExpertTraits& traits, const JsonRef& /*json*/, JsonFields& fields, ModelConfig& config) {
  config.num_experts = fields.get_or<std::uint32_t>("num_experts", 32);
  config.experts_per_token = fields.get_or<std::uint32_t>("num_experts_per_tok", 4);
  config.expert_size = fields.get_or<std::uint32_t>("moe_intermediate_size", 1792);
  config.expert_scoring = ExpertScoring::sigmoid;
  config.expert_choice_bias = fields.get_or<bool>("use_expert_bias", true);
  config.normalize_experts = fields.get_or<bool>("norm_topk_prob", true);
  config.expert_sum_floor = traits.sum_floor;
  config.expert_scale = fields.get_or<float>("routed_scaling_factor", 1.0F);
  config.dense_layers.assign(std::min(config.num_layers, kMaxLayers), false);
  const auto dense = fields.get_or<std::uint32_t>("num_dense_layers", 2);
  std::fill_n(config.dense_layers.begin(), std::min<std::size_t>(dense, config.dense_layers.size()), true);
}

void read_routed_experts(const ExpertTraits& traits, const JsonRef& /*json*/, JsonFields& fields, ModelConfig& config) {
  config.num_experts = fields.need<std::uint32_t>("n_routed_experts");
  config.experts_per_token = fields.need<std::uint32_t>("num_experts_per_tok");
  config.expert_size = fields.need<std::uint32_t>("moe_intermediate_size");
  config.shared_expert_size = fields.get_optional<std::uint32_t>("n_shared_experts").value_or(0) * config.expert_size;
  config.has_shared_expert_gate = false;
  read_router(traits, fields, config);
  const auto dense = fields.get_or<std::uint32_t>("first_k_dense_replace", traits.dense_layers);
  config.dense_layers.assign(std::min(config.num_layers, kMaxLayers), false);
  std::fill_n(config.dense_layers.begin(), std::min<std::size_t>(dense, config.dense_layers.size()), true);
  if (fields.get_or<std::uint32_t>("moe_layer_freq", 1) != 1)
    refuse_key(fields, "moe_layer_freq", "a value other than 1 is not implemented",
               "use a model in which every layer after the dense layers has experts");
  config.num_draft_layers = fields.get_optional<std::uint32_t>("num_nextn_predict_layers").value_or(0);
}

}  // namespace quire
