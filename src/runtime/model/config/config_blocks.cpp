// Reads models in which each block is only attention, only a state or only a feed-forward part. Called once per model, when its headers are
// read, for both file formats. Names and defaults follow transformers' NemotronHConfig and llama.cpp's converter.
#include "runtime/model/config/config_blocks.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "format/quote.h"
#include "runtime/model/config/config_layers.h"
#include "runtime/model/config/config_states.h"

namespace quire {
namespace {

enum class Block : std::uint8_t { state, attention, dense, experts };

// Builds the layers. Each attention or state block begins a layer. A feed-forward block completes the layer before it.
template <class Fields>
void make_layers(const std::vector<Block>& blocks, std::string_view field, Fields& fields, ModelConfig& config) {
  config.layer_memories.clear();
  config.dense_layers.clear();
  for (std::uint32_t i = 0; i < blocks.size(); ++i) {
    if (blocks[i] == Block::state || blocks[i] == Block::attention) {
      config.layer_memories.push_back(blocks[i] == Block::state ? LayerMemory::state : LayerMemory::attention);
      config.mixer_blocks.push_back(i);
      config.feed_forward_blocks.push_back(ModelConfig::kNoBlock);
      config.dense_layers.push_back(true);
    } else if (i == 0 || config.feed_forward_blocks.empty() || config.feed_forward_blocks.back() != ModelConfig::kNoBlock) {
      fields.refuse({ErrorCode::unsupported, fields.field(field),
                     fmt::format("block {} is a feed-forward block that does not follow an attention or Mamba-2 block", i),
                     "use a model in which each feed-forward block follows an attention or Mamba-2 block"});
      return;
    } else {
      config.feed_forward_blocks.back() = i;
      config.dense_layers.back() = blocks[i] == Block::dense;
    }
  }
  config.num_layers = static_cast<std::uint32_t>(config.mixer_blocks.size());
  if (std::ranges::find(config.dense_layers, false) == config.dense_layers.end()) config.num_experts = 0;
}

void set_common(ModelConfig& config) {
  config.nope_layer_interval = 1;  // no layer rotates
  config.rotary_dim = config.head_dim;
  config.expert_scoring = ExpertScoring::sigmoid;
  config.expert_choice_bias = true;
  config.has_shared_expert_gate = false;
}

std::optional<Block> block_named(std::string_view name) {
  using enum Block;
  constexpr std::array<std::pair<std::string_view, Block>, 10> kNames{{{"M", state},
                                                                       {"*", attention},
                                                                       {"-", dense},
                                                                       {"E", experts},
                                                                       {"mamba", state},
                                                                       {"linear_attention", state},
                                                                       {"attention", attention},
                                                                       {"full_attention", attention},
                                                                       {"mlp", dense},
                                                                       {"moe", experts}}};
  for (const auto& [known, block] : kNames)
    if (name == known) return block;
  return std::nullopt;
}

// Reads the kind of each block: one letter per block, or a list of names. If the config does not have the number of blocks, sets it to the
// length of the list.
std::vector<Block> read_pattern(const JsonRef& json, JsonFields& fields, ModelConfig& config) {
  std::vector<Block> blocks;
  const auto list = json.find("layers_block_type");
  const auto entries = list ? list->elements() : std::unexpected(Error{});
  if (config.num_layers == 0 && entries) config.num_layers = static_cast<std::uint32_t>(std::min<std::size_t>(entries->size(), kMaxLayers));
  const auto add = [&](std::string_view name, const std::string& path) {
    const auto block = block_named(name);
    if (!block)
      fields.refuse({ErrorCode::unsupported, path, fmt::format("{} is not implemented", in_quotes(name)),
                     "use a model with Mamba-2, attention and feed-forward blocks only"});
    blocks.push_back(block.value_or(Block::dense));
  };
  const char* key = json.find("layers_block_type") ? "layers_block_type" : "hybrid_override_pattern";
  for (const JsonRef& entry : layer_list(json, "layers_block_type", fields, config)) {
    const auto name = entry.as<std::string>();
    if (!name) fields.refuse(name.error());
    add(name.value_or(""), entry.path());
  }
  const std::string letters = json.find("layers_block_type") ? "" : fields.need<std::string>("hybrid_override_pattern");
  for (const char letter : letters) add({&letter, 1}, "config.json: hybrid_override_pattern");
  if (blocks.size() != config.num_layers)
    fields.refuse({ErrorCode::corrupt, fmt::format("config.json: {}", key),
                   fmt::format("has {} blocks, but num_hidden_layers is {}", blocks.size(), config.num_layers),
                   "use the config that belongs to the weights"});
  return blocks;
}

void read_experts_of(JsonFields& fields, ModelConfig& config) {
  config.num_experts = fields.need<std::uint32_t>("n_routed_experts");
  config.experts_per_token = fields.need<std::uint32_t>("num_experts_per_tok");
  config.expert_size = fields.need<std::uint32_t>("moe_intermediate_size");
  const bool has_shared = fields.get_or<std::uint32_t>("n_shared_experts", 1) > 0;
  config.shared_expert_size = has_shared ? fields.need<std::uint32_t>("moe_shared_expert_intermediate_size") : 0;
  config.expert_tensors = ExpertTensors::separate_shared;
  config.normalize_experts = fields.get_or<bool>("norm_topk_prob", true);
  config.expert_scale = fields.get_or<float>("routed_scaling_factor", 1.0F);
  if (fields.get_or<std::uint32_t>("n_group", 1) > 1)
    refuse_key(fields, "n_group", "expert groups are not implemented for this architecture", "use a model with 1");
  if (fields.get_optional<std::uint32_t>("moe_latent_size").value_or(0) > 0)
    refuse_key(fields, "moe_latent_size", "experts with a latent projection are not implemented", "use a model without it");
}

std::uint32_t rows_of(const GgufFile& file, std::uint32_t block, const char* name) {
  const GgufTensor* tensor = file.find_tensor(fmt::format("blk.{}.{}.weight", block, name));
  return tensor == nullptr ? 0 : static_cast<std::uint32_t>(std::min<std::uint64_t>(tensor->rows(), ~0U));
}

void read_experts_of(const GgufFile& file, std::uint32_t block, ConfigFields<GgufFile>& fields, ModelConfig& config) {
  config.num_experts = fields.need<std::uint32_t>("expert_count");
  config.experts_per_token = fields.need<std::uint32_t>("expert_used_count");
  config.expert_size = rows_of(file, block, "ffn_up_exps") / std::max(config.num_experts, 1U);
  config.shared_expert_size = rows_of(file, block, "ffn_up_shexp");
  config.expert_tensors = ExpertTensors::stacked;
  config.normalize_experts = fields.get_or<bool>("expert_weights_norm", true);
  config.expert_scale = fields.get_or<float>("expert_weights_scale", 1.0F);
  if (fields.get_or<std::uint32_t>("expert_group_count", 1) > 1)
    fields.refuse({ErrorCode::unsupported, fields.field("expert_group_count"), "expert groups are not implemented for this architecture",
                   "use a model with 1"});
}

}  // namespace

void check_step_limit(const JsonRef& json, JsonFields& fields) {
  constexpr double kBeyondAnyStep = 1e30;
  const auto limit = json.find("time_step_limit");
  const auto bounds = limit ? limit->elements() : std::unexpected(Error{});
  if (!bounds) return;  // transformers has also written infinity as a string
  const auto bound = [&](std::size_t i, double usual) { return i < bounds->size() ? (*bounds)[i].as<double>().value_or(usual) : usual; };
  if (!(bound(0, 0.0) <= 0.0) || !(bound(1, kBeyondAnyStep) >= kBeyondAnyStep))
    refuse_key(fields, "time_step_limit", "bounds on the time step are not implemented", "use a model without them");
}

void read_blocks(const JsonRef& json, JsonFields& fields, ModelConfig& config) {
  set_common(config);
  check_step_limit(json, fields);
  const std::vector<Block> blocks = read_pattern(json, fields, config);
  if (std::ranges::find(blocks, Block::experts) != blocks.end()) read_experts_of(fields, config);
  make_layers(blocks, "config.json: hybrid_override_pattern", fields, config);
  const bool bias = fields.get_or<bool>("use_bias", false);
  config.state = {.kind = StateKind::mamba2,
                  .conv_taps = fields.get_or<std::uint32_t>("conv_kernel", 4),
                  .conv_bias = fields.get_or<bool>("use_conv_bias", true),
                  .input_bias = bias,
                  .output_bias = bias,
                  .heads = fields.get_or<std::uint32_t>("mamba_num_heads", 128),
                  .head_dim = fields.get_or<std::uint32_t>("mamba_head_dim", 64),
                  .groups = fields.get_or<std::uint32_t>("n_groups", 8),
                  .size = fields.get_or<std::uint32_t>("ssm_state_size", 128),
                  .decay_as_log = true,
                  .has_norm = true};
  config.state.norm_groups = config.state.groups;
  if (fields.get_or<bool>("mlp_bias", false))
    refuse_key(fields, "mlp_bias", "is not implemented for this architecture", "use a model without it");
}

void read_blocks(const GgufFile& file, ConfigFields<GgufFile>& fields, ModelConfig& config) {
  set_common(config);
  std::vector<Block> blocks;
  for (std::uint32_t i = 0; i < std::min(config.num_layers, kMaxLayers); ++i) {
    const bool has_experts = rows_of(file, i, "ffn_up_exps") > 0;
    if (has_experts && config.num_experts == 0) read_experts_of(file, i, fields, config);
    if (const std::uint32_t width = rows_of(file, i, "ffn_up"); width > 0) config.intermediate_size = width;
    blocks.push_back(rows_of(file, i, "ssm_in") > 0   ? Block::state
                     : rows_of(file, i, "attn_q") > 0 ? Block::attention
                     : has_experts                    ? Block::experts
                                                      : Block::dense);
  }
  make_layers(blocks, "block_count", fields, config);
  read_mamba(file, fields, config);
}

}  // namespace quire
