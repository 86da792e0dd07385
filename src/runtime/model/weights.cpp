// Which tensors of a model become which weights. Called once, by whoever loads a model. A tensor that nobody asks for is an error: leaving
// it out would change answers.
#include "runtime/model/weights.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <unordered_map>

#include "base/check.h"
#include "format/dequant.h"
#include "format/quote.h"
#include "runtime/model/weight_packing.h"

// A load has three parts: collect every tensor the config asks for and check its shape and type; refuse what is left over; pack
// (weight_packing.h).

namespace quire {
namespace {

struct StackedPart {
  std::uint32_t rows;
  PackedMatrix* matrix;
};

std::string shape_text(const TensorView& view) {
  return view.num_dims < 2 ? fmt::format("[{}]", view.columns) : fmt::format("[{}, {}]", view.rows, view.columns);
}

// Collects what is to be packed and remembers the first error; at the end it says which tensors of the file nobody has asked for.
class TaskCollector {
 public:
  TaskCollector(const ModelFile& file, std::vector<TensorView> tensors) : file_(file) {
    for (TensorView& view : tensors) {
      std::string name = view.name;
      unused_.emplace(std::move(name), std::move(view));
    }
  }

  void matrix(TensorRole role, std::uint32_t layer, std::uint32_t rows, std::uint32_t columns, PackedMatrix& out,
              std::uint32_t expert = 0) {
    if (auto view = take(role, layer, 2, rows, columns, expert)) tasks_.push_back({std::move(*view), &out, nullptr});
  }
  void vector(TensorRole role, std::uint32_t layer, std::uint32_t size, std::vector<float>& out) {
    if (auto view = take(role, layer, 1, 1, size)) tasks_.push_back({std::move(*view), nullptr, &out});
  }
  // Floats, which become [columns][rows].
  void table(TensorRole role, std::uint32_t layer, std::uint32_t rows, std::uint32_t columns, std::vector<float>& out) {
    if (auto view = take(role, layer, 2, rows, columns)) tasks_.push_back({std::move(*view), nullptr, &out, true});
  }
  // So many floats, whatever their shape.
  void floats(TensorRole role, std::uint32_t layer, std::uint32_t count, std::vector<float>& out) {
    const auto found = unused_.find(file_.name_of(role, layer));
    const bool is_flat = found == unused_.end() || found->second.rows * found->second.columns != count;
    const std::uint64_t rows = is_flat ? 1 : found->second.rows;
    if (auto view = take(role, layer, is_flat ? 1 : 0, rows, static_cast<std::uint32_t>(count / rows)))
      tasks_.push_back({std::move(*view), nullptr, &out});
  }
  void vector_if(bool present, TensorRole role, std::uint32_t layer, std::uint32_t size, std::vector<float>& out) {
    if (present) vector(role, layer, size, out);
  }
  void linear(TensorRole role, TensorRole bias_role, bool has_bias, std::uint32_t layer, std::uint32_t rows, std::uint32_t columns,
              Linear& out) {
    matrix(role, layer, rows, columns, out.matrix);
    vector_if(has_bias, bias_role, layer, rows, out.bias);
  }
  // Several matrices that the file keeps as one, one below the other.
  void stacked(TensorRole role, std::uint32_t layer, std::uint32_t columns, std::span<const StackedPart> parts) {
    std::uint64_t rows = 0;
    for (const StackedPart& part : parts) rows += part.rows;
    auto view = take(role, layer, 2, rows, columns);
    if (!view) return;
    const std::size_t row_size = view->data.size() / rows;
    for (const StackedPart& part : parts) {
      TensorView own = *view;
      own.rows = part.rows;
      own.data = view->data.first(part.rows * row_size);
      view->data = view->data.subspan(own.data.size());
      tasks_.push_back({std::move(own), part.matrix, nullptr});
    }
  }
  [[nodiscard]] bool has(TensorRole role) const { return unused_.contains(file_.name_of(role, 0)); }

  Result<std::vector<PackTask>> finish() {
    refuse_unused();
    if (error_) return std::unexpected(std::move(*error_));
    return std::move(tasks_);
  }

 private:
  std::optional<TensorView> take(TensorRole role, std::uint32_t layer, std::uint32_t dims, std::uint64_t rows, std::uint32_t columns,
                                 std::uint32_t expert = 0) {
    if (error_) return std::nullopt;
    const std::string name = file_.name_of(role, layer, expert);
    const auto found = unused_.find(name);
    if (found == unused_.end()) {
      error_ = Error{ErrorCode::corrupt, name, "the model has no such tensor", "download the model again"};
      return std::nullopt;
    }
    TensorView view = std::move(found->second);
    unused_.erase(found);
    if (view.rows != rows || view.columns != columns || (dims == 1 && view.num_dims != 1)) {
      const std::string wanted = dims == 1 ? fmt::format("[{}]", columns) : fmt::format("[{}, {}]", rows, columns);
      error_ = Error{ErrorCode::corrupt, name, fmt::format("has shape {}, the config asks for {}", shape_text(view), wanted),
                     "use the config that belongs to the weights"};
      return std::nullopt;
    }
    if (auto format = unpacked_format(view.type); !format) {
      error_ = std::move(format.error());
      error_->field = name;
      return std::nullopt;
    }
    return view;
  }

  // Tied models may carry the output matrix a second time, old exports the table of frequencies, those that judge pairs of texts two rows
  // of the output matrix, and some a draft model of their own, whose layers are not asked.
  static bool may_be_left_out(std::string_view name) {
    return name == "lm_head.weight" || name == "cls.output.weight" || name.starts_with("mtp.") || name.ends_with(".rotary_emb.inv_freq");
  }

  void refuse_unused() {
    if (error_) return;
    for (const auto& [name, view] : unused_) {
      if (may_be_left_out(name)) continue;
      error_ = Error{ErrorCode::unsupported, in_quotes(name),
                     fmt::format("a {} decoder has no use for this tensor", file_.config().architecture),
                     "use a model of a supported architecture, without adapters"};
      return;
    }
  }

  const ModelFile& file_;
  std::unordered_map<std::string, TensorView> unused_;
  std::vector<PackTask> tasks_;
  std::optional<Error> error_;
};

void collect_attention(const LayerConfig& c, std::uint32_t layer, TaskCollector& collector, LayerWeights& out) {
  if (c.fused_qkv) {
    collector.stacked(TensorRole::qkv, layer, c.hidden_size,
                      std::array{StackedPart{c.q_size(), &out.q.matrix}, StackedPart{c.kv_size(), &out.k.matrix},
                                 StackedPart{c.kv_size(), &out.v.matrix}});
  } else {
    const std::uint32_t q_rows = (c.gated_attention ? 2 : 1) * c.q_size();
    collector.linear(TensorRole::q, TensorRole::q_bias, c.qkv_bias, layer, q_rows, c.hidden_size, out.q);
    collector.linear(TensorRole::k, TensorRole::k_bias, c.qkv_bias, layer, c.kv_size(), c.hidden_size, out.k);
    collector.linear(TensorRole::v, TensorRole::v_bias, c.qkv_bias, layer, c.kv_size(), c.hidden_size, out.v);
  }
  const bool whole = c.qk_norm == QkNorm::whole;
  collector.vector_if(c.qk_norm != QkNorm::none, TensorRole::q_norm, layer, whole ? c.q_size() : c.head_dim, out.q_norm);
  collector.vector_if(c.qk_norm != QkNorm::none, TensorRole::k_norm, layer, whole ? c.kv_size() : c.head_dim, out.k_norm);
  collector.linear(TensorRole::attn_output, TensorRole::attn_output_bias, c.output_bias, layer, c.hidden_size, c.q_size(), out.attn_output);
  collector.vector_if(c.post_norms, TensorRole::attn_post_norm, layer, c.hidden_size, out.attn_post_norm);
}

void collect_state(const LayerConfig& c, std::uint32_t layer, TaskCollector& collector, LayerWeights& out) {
  collector.linear(TensorRole::state_input, TensorRole::state_input_bias, c.state.input_bias, layer, c.state_input_size(), c.hidden_size,
                   out.state_input);
  collector.table(TensorRole::conv, layer, c.conv_channels(), c.state.conv_taps, out.conv_weights);
  collector.vector_if(c.state.conv_bias, TensorRole::conv_bias, layer, c.conv_channels(), out.conv_bias);
  collector.linear(TensorRole::state_output, TensorRole::state_output_bias, c.state.output_bias, layer, c.hidden_size,
                   c.state_output_size(), out.state_output);
  if (c.state.kind == StateKind::short_conv) return;
  const bool is_delta = c.state.kind == StateKind::gated_delta;
  collector.floats(TensorRole::step_bias, layer, c.state.heads, out.step_bias);
  collector.floats(TensorRole::state_decay, layer, c.state.heads, out.state_decay);
  if (is_delta)
    collector.matrix(TensorRole::state_rates, layer, 2 * c.state.heads, c.hidden_size, out.state_rates);
  else
    collector.floats(TensorRole::state_skip, layer, c.state.heads, out.state_skip);
  const std::uint32_t norm_size = is_delta ? c.state.head_dim : c.state_output_size();
  if (c.state.has_norm) collector.floats(TensorRole::state_norm, layer, norm_size, out.state_norm);
}

void collect_routed_experts(const LayerConfig& c, std::uint32_t layer, TaskCollector& collector, LayerWeights& out) {
  const ExpertRoles roles = expert_roles(c.expert_tensors);
  collector.matrix(roles.router, layer, c.num_experts, c.hidden_size, out.router);
  if (c.expert_tensors == ExpertTensors::apart || c.expert_tensors == ExpertTensors::apart_in_block) {
    for (std::uint32_t i = 0; i < c.num_experts; ++i) {
      collector.matrix(roles.gate, layer, c.expert_size, c.hidden_size, out.experts[i].gate, i);
      collector.matrix(roles.up, layer, c.expert_size, c.hidden_size, out.experts[i].up, i);
      collector.matrix(roles.down, layer, c.hidden_size, c.expert_size, out.experts[i].down, i);
    }
    return;
  }
  std::vector<StackedPart> gates, ups, gates_and_ups, downs;
  for (std::uint32_t i = 0; i < c.num_experts; ++i) {
    const StackedPart gate{c.expert_size, &out.experts[i].gate}, up{c.expert_size, &out.experts[i].up};
    gates.push_back(gate);
    ups.push_back(up);
    gates_and_ups.insert(gates_and_ups.end(), {gate, up});
    downs.push_back({c.hidden_size, &out.experts[i].down});
  }
  if (c.expert_tensors == ExpertTensors::stacked_gate_up) {
    collector.stacked(roles.gate, layer, c.hidden_size, gates_and_ups);
  } else {
    collector.stacked(roles.gate, layer, c.hidden_size, gates);
    collector.stacked(roles.up, layer, c.hidden_size, ups);
  }
  collector.stacked(roles.down, layer, c.expert_size, downs);
}

void collect_experts(const LayerConfig& c, std::uint32_t layer, TaskCollector& collector, LayerWeights& out) {
  const bool has_shared = c.shared_expert_size > 0;
  out.experts.resize(c.num_experts + (has_shared ? 1 : 0));
  collect_routed_experts(c, layer, collector, out);
  if (!has_shared) return;
  ExpertWeights& shared = out.experts.back();
  if (c.fused_shared_gate_up) {
    collector.stacked(TensorRole::shared_gate_up, layer, c.hidden_size,
                      std::array{StackedPart{c.shared_expert_size, &shared.gate}, StackedPart{c.shared_expert_size, &shared.up}});
  } else {
    collector.matrix(TensorRole::shared_gate, layer, c.shared_expert_size, c.hidden_size, shared.gate);
    collector.matrix(TensorRole::shared_up, layer, c.shared_expert_size, c.hidden_size, shared.up);
  }
  collector.matrix(TensorRole::shared_down, layer, c.hidden_size, c.shared_expert_size, shared.down);
  if (c.weighs_shared_expert) collector.matrix(TensorRole::shared_weight, layer, 1, c.hidden_size, out.shared_weight);
}

void collect_feed_forward(const LayerConfig& c, std::uint32_t layer, TaskCollector& collector, LayerWeights& out) {
  collector.vector_if(c.pre_norms, ffn_norm_role(c.post_norms), layer, c.hidden_size, out.ffn_norm);
  collector.vector_if(c.post_norms, TensorRole::ffn_post_norm, layer, c.hidden_size, out.ffn_post_norm);
  if (c.num_experts > 0) return collect_experts(c, layer, collector, out);
  if (c.fused_gate_up) {
    collector.stacked(TensorRole::gate_up, layer, c.hidden_size,
                      std::array{StackedPart{c.intermediate_size, &out.gate.matrix}, StackedPart{c.intermediate_size, &out.up.matrix}});
  } else {
    collector.linear(TensorRole::gate, TensorRole::gate_bias, c.mlp_bias, layer, c.intermediate_size, c.hidden_size, out.gate);
    collector.linear(TensorRole::up, TensorRole::up_bias, c.mlp_bias, layer, c.intermediate_size, c.hidden_size, out.up);
  }
  collector.linear(TensorRole::down, TensorRole::down_bias, c.mlp_bias, layer, c.hidden_size, c.intermediate_size, out.down);
}

void collect_rope_factors(const ModelConfig& c, TaskCollector& collector, DecoderWeights& out) {
  const std::uint32_t pairs = c.rotary_dim / 2;
  if (c.rope_scaling != RopeScaling::longrope) {
    collector.vector_if(collector.has(TensorRole::rope_factors), TensorRole::rope_factors, 0, pairs, out.rope_factors);
  } else if (c.rope_short_factors.empty()) {
    collector.vector(TensorRole::rope_short_factors, 0, pairs, out.rope_factors);
    collector.vector(TensorRole::rope_long_factors, 0, pairs, out.rope_long_factors);
  } else {
    out.rope_factors = c.rope_short_factors;
    out.rope_long_factors = c.rope_long_factors;
  }
}

Result<std::vector<PackTask>> collect(const ModelFile& file, DecoderWeights& out) {
  auto tensors = file.tensors();
  if (!tensors) return std::unexpected(std::move(tensors.error()));
  const ModelConfig& c = file.config();
  TaskCollector collector(file, std::move(*tensors));
  collector.matrix(TensorRole::token_embedding, 0, c.vocab_size, c.hidden_size, out.embedding);
  collector.vector(TensorRole::output_norm, 0, c.hidden_size, out.output_norm);
  if (!c.tied_embeddings) collector.matrix(TensorRole::output, 0, c.vocab_size, c.hidden_size, out.output);
  collect_rope_factors(c, collector, out);
  out.layers.resize(c.num_layers);
  for (std::uint32_t layer = 0; layer < c.num_layers; ++layer) {
    const LayerConfig config = c.layer(layer);
    collector.vector_if(c.pre_norms, TensorRole::attn_norm, layer, c.hidden_size, out.layers[layer].attn_norm);
    if (config.memory != LayerMemory::state) collect_attention(config, layer, collector, out.layers[layer]);
    if (config.memory != LayerMemory::attention) collect_state(config, layer, collector, out.layers[layer]);
    collect_feed_forward(config, layer, collector, out.layers[layer]);
  }
  return collector.finish();
}

// Once, on the weights: then no pass adds it.
void add_to_norms(float offset, DecoderWeights& weights) {
  const auto add = [offset](std::vector<float>& norm) {
    for (float& weight : norm) weight += offset;
  };
  add(weights.output_norm);
  for (LayerWeights& layer : weights.layers)
    for (auto* norm : {&layer.attn_norm, &layer.q_norm, &layer.k_norm, &layer.attn_post_norm, &layer.ffn_norm, &layer.ffn_post_norm})
      add(*norm);
}

std::uint64_t bytes_of(const Linear& linear) {
  return linear.matrix.bytes() + linear.bias.size() * sizeof(float);
}

}  // namespace

std::uint64_t DecoderWeights::bytes() const {
  std::uint64_t floats = output_norm.size() + rope_factors.size() + rope_long_factors.size();
  std::uint64_t sum = embedding.bytes() + output.bytes();
  for (const LayerWeights& layer : layers) {
    for (const auto* norm : {&layer.attn_norm, &layer.q_norm, &layer.k_norm, &layer.attn_post_norm, &layer.ffn_norm, &layer.ffn_post_norm})
      floats += norm->size();
    for (const auto* part :
         {&layer.conv_weights, &layer.conv_bias, &layer.step_bias, &layer.state_decay, &layer.state_skip, &layer.state_norm})
      floats += part->size();
    for (const Linear* linear :
         {&layer.q, &layer.k, &layer.v, &layer.attn_output, &layer.gate, &layer.up, &layer.down, &layer.state_input, &layer.state_output})
      sum += bytes_of(*linear);
    sum += layer.router.bytes() + layer.shared_weight.bytes() + layer.state_rates.bytes();
    for (const ExpertWeights& expert : layer.experts) sum += expert.gate.bytes() + expert.up.bytes() + expert.down.bytes();
  }
  return sum + floats * sizeof(float);
}

Result<DecoderWeights> load_weights(const ModelFile& file, ThreadPool& pool, void (*progress)(double)) {
  DecoderWeights weights;
  auto tasks = collect(file, weights);
  if (!tasks) return std::unexpected(std::move(tasks.error()));
  if (auto same = file.check_unchanged(); !same) return std::unexpected(std::move(same.error()));
  if (auto packed = pack_weights(file, *tasks, pool, progress); !packed) return std::unexpected(std::move(packed.error()));
  if (auto same = file.check_unchanged(); !same) return std::unexpected(std::move(same.error()));
  add_to_norms(file.config().norm_offset, weights);
  if (file.config().state.decay_as_log)
    for (LayerWeights& layer : weights.layers)
      for (float& decay : layer.state_decay) decay = -std::exp(decay);
  const bool longrope = !weights.rope_long_factors.empty();
  for (const auto& [role, factors] :
       {std::pair(longrope ? TensorRole::rope_short_factors : TensorRole::rope_factors, &weights.rope_factors),
        {TensorRole::rope_long_factors, &weights.rope_long_factors}}) {
    for (const float factor : *factors) {
      if (factor > 0.0F && factor < INFINITY) continue;
      return fail(ErrorCode::corrupt, file.name_of(role, 0), fmt::format("holds {}, which divides no frequency", factor),
                  "download the model again");
    }
  }
  return weights;
}

}  // namespace quire
