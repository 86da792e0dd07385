// What config.json says of a mixture of experts. Called once per model, when its headers are read; any thread. Names and defaults are those
// of the model classes of transformers.
#include "runtime/model/config/config_experts.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <string>
#include <utility>

#include "format/quote.h"

namespace quire {
namespace {

// Routers as DeepSeek's: scores of their own kind, experts in groups, dense layers first; and what each takes where a key is missing.
struct Router {
  const char* name;
  bool is_sigmoid = true;
  bool normalizes = true;
  float scale = 1.0F;
  std::uint32_t groups = 1;
  std::uint32_t groups_per_token = 1;
  std::uint32_t dense_layers = 0;
};

constexpr std::array kRouters{
    Router{.name = "deepseek_v2", .is_sigmoid = false, .normalizes = false},
    Router{.name = "deepseek_v3", .scale = 2.5F, .groups = 8, .groups_per_token = 4, .dense_layers = 3},
    Router{.name = "glm4_moe", .dense_layers = 1},
    Router{.name = "dots1", .normalizes = false},
};

const Router* router_of(std::string_view architecture) {
  const auto* known = std::ranges::find(kRouters, architecture, [](const Router& router) { return std::string_view(router.name); });
  return known == kRouters.end() ? nullptr : known;
}

// Layers of Qwen's mixtures may be dense: those listed, and all but each decoder_sparse_step-th.
void read_dense_layers(const JsonRef& json, JsonFields& fields, ModelConfig& config) {
  const auto step = fields.get_or<std::uint32_t>("decoder_sparse_step", 1);
  if (step == 0) refuse_key(fields, "decoder_sparse_step", "0 makes no layer sparse", "use the config that belongs to the weights");
  config.dense_layers.assign(std::min(config.num_layers, kMostLayers), false);
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

// Mixtral, Granite and gpt-oss say local experts, of the size that is the feed-forward part's elsewhere, and always normalise.
void read_plain_experts(const JsonRef& json, JsonFields& fields, ModelConfig& config) {
  const std::string_view name = config.architecture;
  const bool is_qwen = name.starts_with("qwen");
  const bool is_gpt_oss = name == "gpt_oss";
  const bool is_local = name == "mixtral" || name == "granitemoe" || is_gpt_oss;
  config.num_experts = fields.need<std::uint32_t>(is_local ? "num_local_experts" : "num_experts");
  config.experts_per_token = fields.need<std::uint32_t>("num_experts_per_tok");
  config.expert_size = is_qwen ? fields.need<std::uint32_t>("moe_intermediate_size") : config.intermediate_size;
  if (name == "qwen2_moe" || name == "qwen3_next")
    config.shared_expert_size = fields.need<std::uint32_t>("shared_expert_intermediate_size");
  config.normalize_experts = is_local || fields.get_or<bool>("norm_topk_prob", name == "qwen3_next");
  config.expert_tensors = name == "mixtral"      ? ExpertTensors::apart_in_block
                          : name == "granitemoe" ? ExpertTensors::stacked_gate_up
                          : is_gpt_oss           ? ExpertTensors::turned
                                                 : ExpertTensors::apart;
  config.expert_bias = is_gpt_oss;
  if (is_qwen) read_dense_layers(json, fields, config);
  // Of Granite's some have a part that all tokens go through.
  if (const auto shared = name == "granitemoe" ? fields.get_or<std::uint32_t>("shared_intermediate_size", 0) : 0; shared > 0) {
    config.shared_expert_size = shared;
    config.fused_shared_gate_up = true;
    config.weighs_shared_expert = false;
    config.tensor_names = TensorNames::granite_hybrid;
  }
  if (fields.get_optional<double>("clip_qkv"))
    refuse_key(fields, "clip_qkv", "queries, keys and values within bounds are not implemented", "use a model without it");
  if (is_qwen && fields.get_or<bool>("use_sliding_window", false) && !json.find("layer_types"))
    refuse_key(fields, "use_sliding_window", "says not which layers have a window", "name them in layer_types");
}

// A number, or one for each layer, which are the same in all.
std::uint32_t read_same(const JsonRef& json, const char* key, JsonFields& fields) {
  const auto value = json.find(key);
  const auto list = value ? value->elements() : std::unexpected(Error{});
  if (!list || list->empty()) return fields.need<std::uint32_t>(key);
  const auto first = list->front().as<std::uint32_t>();
  if (!first) fields.refuse(first.error());
  for (const JsonRef& entry : *list)
    if (entry.as<std::uint32_t>().value_or(0) != first.value_or(0))
      refuse_key(fields, key, "layers that differ in it are not implemented", "use a model whose layers are alike");
  return first.value_or(0);
}

// Softmaxes with a bias where experts are chosen, and dense layers here and there.
void read_ernie(JsonFields& fields, ModelConfig& config) {
  config.num_experts = fields.get_or<std::uint32_t>("moe_num_experts", 64);
  config.experts_per_token = fields.get_or<std::uint32_t>("moe_k", 6);
  config.expert_size = fields.get_or<std::uint32_t>("moe_intermediate_size", 1536);
  config.shared_expert_size = fields.get_or<std::uint32_t>("moe_num_shared_experts", 2) * config.expert_size;
  config.expert_tensors = ExpertTensors::apart_shared;
  config.expert_choice_bias = config.normalize_experts = true;
  config.expert_sum_floor = fields.get_or<float>("moe_norm_min", 1e-12F);
  config.weighs_shared_expert = false;
  const auto first = fields.get_or<std::uint32_t>("moe_layer_start_index", 1), step = fields.get_or<std::uint32_t>("moe_layer_interval", 1);
  const auto last = fields.get_or<std::int64_t>("moe_layer_end_index", -1);
  if (step == 0) refuse_key(fields, "moe_layer_interval", "0 makes no layer sparse", "use the config that belongs to the weights");
  config.dense_layers.assign(std::min(config.num_layers, kMostLayers), false);
  for (std::uint32_t i = 0; i < config.dense_layers.size(); ++i)
    config.dense_layers[i] = i < first || (last >= 0 && std::cmp_greater(i, last)) || (i + 1) % std::max(step, 1U) != 0;
}

// Experts are as wide as its config says of the feed-forward part; all tokens go through another one as wide.
void read_hunyuan(const JsonRef& json, JsonFields& fields, ModelConfig& config) {
  config.num_experts = read_same(json, "num_experts", fields);
  config.experts_per_token = read_same(json, "moe_topk", fields);
  config.expert_size = config.shared_expert_size = config.intermediate_size;
  config.expert_tensors = ExpertTensors::apart_shared;
  config.normalize_experts = true;
  config.weighs_shared_expert = false;
  if (json.find("moe_intermediate_size") && read_same(json, "moe_intermediate_size", fields) != config.intermediate_size)
    refuse_key(fields, "moe_intermediate_size", "differs from intermediate_size", "use a model where they are the same");
  if (json.find("num_shared_expert") && read_same(json, "num_shared_expert", fields) != 1)
    refuse_key(fields, "num_shared_expert", "other than 1 is not implemented", "use a model with one");
}

// Sigmoids, with a bias or without one where experts are chosen; the first layers are dense.
void read_lfm2_experts(JsonFields& fields, ModelConfig& config) {
  config.num_experts = fields.get_or<std::uint32_t>("num_experts", 32);
  config.experts_per_token = fields.get_or<std::uint32_t>("num_experts_per_tok", 4);
  config.expert_size = fields.get_or<std::uint32_t>("moe_intermediate_size", 1792);
  config.expert_scoring = ExpertScoring::sigmoid;
  config.expert_choice_bias = fields.get_or<bool>("use_expert_bias", true);
  config.normalize_experts = fields.get_or<bool>("norm_topk_prob", true);
  config.expert_sum_floor = 1e-6F;
  config.expert_scale = fields.get_or<float>("routed_scaling_factor", 1.0F);
  config.dense_layers.assign(std::min(config.num_layers, kMostLayers), false);
  const auto dense = fields.get_or<std::uint32_t>("num_dense_layers", 2);
  std::fill_n(config.dense_layers.begin(), std::min<std::size_t>(dense, config.dense_layers.size()), true);
}

// greedy and group_limited_greedy (V2), noaux_tc (all others; dots.llm1 says so of its scores, too).
void read_router(const Router& router, JsonFields& fields, ModelConfig& config) {
  const char* usual_method = router.is_sigmoid ? "noaux_tc" : "greedy";
  const auto method = fields.get_or<std::string>("topk_method", usual_method);
  const bool in_groups = router.is_sigmoid || method == "group_limited_greedy";
  if (method != usual_method && (router.is_sigmoid || !in_groups))
    refuse_key(fields, "topk_method", fmt::format("{} is not implemented", in_quotes(method)), "use a model with another router");
  const char* usual_scores = router.is_sigmoid ? "sigmoid" : "softmax";
  const auto scores = fields.get_or<std::string>("scoring_func", usual_scores);
  if (scores != usual_scores && (config.architecture != "dots1" || scores != "noaux_tc"))
    refuse_key(fields, "scoring_func", fmt::format("{} is not implemented", in_quotes(scores)), "use a model with another router");
  config.expert_scoring = router.is_sigmoid ? ExpertScoring::sigmoid : ExpertScoring::softmax;
  config.expert_choice_bias = router.is_sigmoid;
  config.normalize_experts = fields.get_or<bool>("norm_topk_prob", router.normalizes);
  config.expert_scale = fields.get_or<float>("routed_scaling_factor", router.scale);
  if (!in_groups) return;
  const auto groups = fields.get_or<std::uint32_t>("n_group", router.groups);
  if (groups == 1) return;
  config.num_expert_groups = groups;
  config.groups_per_token = fields.get_or<std::uint32_t>("topk_group", router.groups_per_token);
}

void read_routed_experts(const Router& router, JsonFields& fields, ModelConfig& config) {
  config.num_experts = fields.need<std::uint32_t>("n_routed_experts");
  config.experts_per_token = fields.need<std::uint32_t>("num_experts_per_tok");
  config.expert_size = fields.need<std::uint32_t>("moe_intermediate_size");
  config.shared_expert_size = fields.get_optional<std::uint32_t>("n_shared_experts").value_or(0) * config.expert_size;
  config.expert_tensors = ExpertTensors::apart_shared;
  config.weighs_shared_expert = false;
  read_router(router, fields, config);
  const auto dense = fields.get_or<std::uint32_t>("first_k_dense_replace", router.dense_layers);
  config.dense_layers.assign(std::min(config.num_layers, kMostLayers), false);
  std::fill_n(config.dense_layers.begin(), std::min<std::size_t>(dense, config.dense_layers.size()), true);
  if (fields.get_or<std::uint32_t>("moe_layer_freq", 1) != 1)
    refuse_key(fields, "moe_layer_freq", "layers with experts here and there are not implemented", "use a model with 1");
  config.num_draft_layers = fields.get_optional<std::uint32_t>("num_nextn_predict_layers").value_or(0);
}

}  // namespace

bool is_mixture(std::string_view architecture) {
  constexpr std::array kNamed{"mixtral", "gpt_oss", "qwen3_next"};
  return router_of(architecture) != nullptr || std::ranges::find(kNamed, architecture) != kNamed.end() || architecture.ends_with("moe");
}

void read_experts(const JsonRef& json, JsonFields& fields, ModelConfig& config) {
  if (const Router* router = router_of(config.architecture))
    read_routed_experts(*router, fields, config);
  else if (config.architecture == "ernie4_5_moe")
    read_ernie(fields, config);
  else if (config.architecture == "hunyuan_v1_moe")
    read_hunyuan(json, fields, config);
  else if (config.architecture == "lfm2_moe")
    read_lfm2_experts(fields, config);
  else
    read_plain_experts(json, fields, config);
}

}  // namespace quire
