// Assigns the tensors of a model to weights. Called once, when a model is loaded. A tensor that the decoder does not use is an error,
// because ignoring it would change outputs.
#include "runtime/model/weights/weights.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <unordered_map>
#include <unordered_set>

#include "runtime/model/weights/task_collector.h"
#include "runtime/model/weights/weight_packing.h"
#include "runtime/model/weights/whisper_tensors.h"

// A load has three parts:
// - collect every tensor that the config requires, and check its shape and type;
// - refuse the remaining tensors;
// - pack the tensors (weight_packing.h).

namespace quire {
namespace {

// Collects latent attention. In kv_b, each head has rows for its keys, [key_dim][kv_rank], and then rows for its values. Queries are
// multiplied with the transposed rows for keys. Newer GGUF files store both parts separately, with the part for keys already transposed.
void collect_latents(const LayerConfig& c, std::uint32_t layer, TaskCollector& collector, LayerWeights& out) {
  const LatentShape& shape = c.latent;
  LatentWeights& latent = out.latent;
  const std::uint32_t q_size = c.num_heads * (shape.key_dim + c.rotary_dim);
  collector.matrix(TensorRole::kv_a, layer, c.head_dim, c.hidden_size, latent.kv_a);
  collector.vector(TensorRole::kv_a_norm, layer, shape.kv_rank, latent.kv_a_norm);
  if (shape.q_rank > 0) {
    collector.matrix(TensorRole::q_a, layer, shape.q_rank, c.hidden_size, latent.q_a);
    collector.vector(TensorRole::q_a_norm, layer, shape.q_rank, latent.q_a_norm);
    collector.matrix(TensorRole::q_b, layer, q_size, shape.q_rank, out.q.matrix);
  } else {
    collector.matrix(TensorRole::q, layer, q_size, c.hidden_size, out.q.matrix);
  }
  latent.k_up.resize(c.num_heads);
  latent.v_up.resize(c.num_heads);
  if (!collector.has(TensorRole::k_b, layer))
    return collector.heads(TensorRole::kv_b, layer, shape.kv_rank, shape.key_dim, shape.value_dim, latent.k_up, latent.v_up);
  std::vector<StackedPart> keys, values;
  for (std::uint32_t head = 0; head < c.num_heads; ++head) {
    keys.push_back({shape.kv_rank, &latent.k_up[head]});
    values.push_back({shape.value_dim, &latent.v_up[head]});
  }
  collector.stacked(TensorRole::k_b, layer, shape.key_dim, keys);
  collector.stacked(TensorRole::v_b, layer, shape.kv_rank, values);
}

void collect_attention(const LayerConfig& c, std::uint32_t layer, TaskCollector& collector, LayerWeights& out) {
  if (c.latent.kv_rank > 0) {
    collect_latents(c, layer, collector, out);
  } else if (c.fused_qkv) {
    collector.stacked(TensorRole::qkv, layer, c.hidden_size,
                      std::array{StackedPart{c.q_size(), &out.q.matrix}, StackedPart{c.kv_size(), &out.k.matrix},
                                 StackedPart{c.kv_size(), &out.v.matrix}},
                      true);
  } else {
    const std::uint32_t q_rows = (c.gated_attention ? 2 : 1) * c.q_size();
    collector.linear(TensorRole::q, TensorRole::q_bias, c.qkv_bias, layer, q_rows, c.hidden_size, out.q);
    collector.linear(TensorRole::k, TensorRole::k_bias, c.qkv_bias, layer, c.kv_size(), c.hidden_size, out.k);
    collector.linear(TensorRole::v, TensorRole::v_bias, c.qkv_bias, layer, c.kv_size(), c.hidden_size, out.v);
  }
  const bool whole = c.qk_norm == QkNorm::whole;
  collector.vector_if(c.qk_norm != QkNorm::none, TensorRole::q_norm, layer, whole ? c.q_size() : c.head_dim, out.q_norm);
  collector.vector_if(c.qk_norm != QkNorm::none, TensorRole::k_norm, layer, whole ? c.kv_size() : c.head_dim, out.k_norm);
  collector.linear(TensorRole::attn_output, TensorRole::attn_output_bias, c.output_bias, layer, c.hidden_size, c.attended_size(),
                   out.attn_output);
  collector.vector_if(c.attention_sinks, TensorRole::sinks, layer, c.num_heads, out.sinks);
  collector.vector_if(c.post_norms, TensorRole::attn_post_norm, layer, c.hidden_size, out.attn_post_norm);
}

void collect_state(const LayerConfig& c, std::uint32_t layer, TaskCollector& collector, LayerWeights& out) {
  if (c.state.kind == StateKind::gated_delta && collector.has(TensorRole::state_gate, layer)) {
    collector.matrix(TensorRole::qkv, layer, c.conv_channels(), c.hidden_size, out.state_input.matrix);
    collector.matrix(TensorRole::state_gate, layer, c.state_output_size(), c.hidden_size, out.state_gate);
  } else {
    collector.linear(TensorRole::state_input, TensorRole::state_input_bias, c.state.input_bias, layer, c.state_input_size(), c.hidden_size,
                     out.state_input);
  }
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

// Returns whether the feed-forward part has a gate. If not, the file's `up` is the only product, and it is stored as `gate`.
bool is_gated(const LayerShape& shape) {
  return has_gate(shape.activation);
}

void collect_routed_experts(const LayerConfig& c, std::uint32_t layer, TaskCollector& collector, LayerWeights& out) {
  const ExpertRoles roles = expert_roles(c.expert_tensors);
  collector.matrix(roles.router, layer, c.num_experts, c.hidden_size, out.router);
  if (are_separate(c.expert_tensors)) {
    for (std::uint32_t i = 0; i < c.num_experts; ++i) {
      if (is_gated(c)) collector.matrix(roles.gate, layer, c.expert_size, c.hidden_size, out.experts[i].gate, i);
      collector.matrix(roles.up, layer, c.expert_size, c.hidden_size, is_gated(c) ? out.experts[i].up : out.experts[i].gate, i);
      collector.matrix(roles.down, layer, c.hidden_size, c.expert_size, out.experts[i].down, i);
    }
    return;
  }
  if (c.expert_tensors == ExpertTensors::transposed) {
    std::vector<std::vector<PackedMatrix*>> gates_and_ups, downs;
    for (ExpertWeights& expert : out.experts) {
      gates_and_ups.push_back({&expert.gate, &expert.up});
      downs.push_back({&expert.down});
    }
    collector.transposed(roles.gate, layer, c.hidden_size, c.expert_size, gates_and_ups);
    collector.transposed(roles.down, layer, c.expert_size, c.hidden_size, downs);
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
  } else if (is_gated(c)) {
    collector.stacked(roles.gate, layer, c.hidden_size, gates);
    collector.stacked(roles.up, layer, c.hidden_size, ups);
  } else {
    collector.stacked(roles.up, layer, c.hidden_size, gates);
  }
  collector.stacked(roles.down, layer, c.expert_size, downs);
}

void collect_expert_biases(const LayerConfig& c, std::uint32_t layer, TaskCollector& collector, LayerWeights& out) {
  std::vector<std::vector<std::vector<float>*>> gates, ups, gates_and_ups, downs;
  for (ExpertWeights& expert : out.experts) {
    gates.push_back({&expert.gate_bias});
    ups.push_back({&expert.up_bias});
    gates_and_ups.push_back({&expert.gate_bias, &expert.up_bias});
    downs.push_back({&expert.down_bias});
  }
  collector.vector(TensorRole::router_bias, layer, c.num_experts, out.router_bias);
  if (c.expert_tensors == ExpertTensors::transposed) {
    collector.stacked_vectors(TensorRole::expert_gate_bias, layer, c.expert_size, gates_and_ups);
  } else {
    collector.stacked_vectors(TensorRole::expert_gate_bias, layer, c.expert_size, gates);
    collector.stacked_vectors(TensorRole::expert_up_bias, layer, c.expert_size, ups);
  }
  collector.stacked_vectors(TensorRole::expert_down_bias, layer, c.hidden_size, downs);
}

void collect_experts(const LayerConfig& c, std::uint32_t layer, TaskCollector& collector, LayerWeights& out) {
  const bool has_shared = c.shared_expert_size > 0;
  out.num_routed = c.num_experts;
  out.experts.resize(c.num_experts + (has_shared ? 1 : 0));
  collect_routed_experts(c, layer, collector, out);
  if (c.expert_bias) collect_expert_biases(c, layer, collector, out);
  if (c.expert_choice_bias) collector.floats(TensorRole::choice_bias, layer, c.num_experts, out.choice_bias);
  if (!has_shared) return;
  ExpertWeights& shared = out.experts.back();
  const ExpertRoles roles = shared_expert_roles(c.expert_tensors);
  if (c.fused_shared_gate_up) {
    collector.stacked(TensorRole::shared_gate_up, layer, c.hidden_size,
                      std::array{StackedPart{c.shared_expert_size, &shared.gate}, StackedPart{c.shared_expert_size, &shared.up}});
  } else {
    if (is_gated(c)) collector.matrix(roles.gate, layer, c.shared_expert_size, c.hidden_size, shared.gate);
    collector.matrix(roles.up, layer, c.shared_expert_size, c.hidden_size, is_gated(c) ? shared.up : shared.gate);
  }
  collector.matrix(roles.down, layer, c.hidden_size, c.shared_expert_size, shared.down);
  if (c.has_shared_expert_gate) collector.matrix(TensorRole::shared_weight, layer, 1, c.hidden_size, out.shared_weight);
}

void collect_feed_forward(const LayerConfig& c, std::uint32_t layer, TaskCollector& collector, LayerWeights& out) {
  if (!c.has_feed_forward) return;
  collector.vector_if(c.pre_norms, ffn_norm_role(c), layer, c.hidden_size, out.ffn_norm);
  collector.vector_if(c.post_norms, TensorRole::ffn_post_norm, layer, c.hidden_size, out.ffn_post_norm);
  if (c.num_experts > 0) return collect_experts(c, layer, collector, out);
  if (c.fused_gate_up) {
    collector.stacked(TensorRole::gate_up, layer, c.hidden_size,
                      std::array{StackedPart{c.intermediate_size, &out.gate.matrix}, StackedPart{c.intermediate_size, &out.up.matrix}},
                      true);
  } else {
    if (is_gated(c))
      collector.linear(TensorRole::gate, TensorRole::gate_bias, c.mlp_bias, layer, c.intermediate_size, c.hidden_size, out.gate);
    collector.linear(TensorRole::up, TensorRole::up_bias, c.mlp_bias, layer, c.intermediate_size, c.hidden_size,
                     is_gated(c) ? out.up : out.gate);
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

Result<std::vector<PackTask>> collect(const ModelFile& file, WhisperTensors& whisper, DecoderWeights& out) {
  auto tensors = file.tensors();
  if (!tensors) return std::unexpected(std::move(tensors.error()));
  const ModelConfig& c = file.config();
  TaskCollector collector(file, std::move(*tensors));
  if (c.encoder.num_layers > 0) {
    whisper.collect(c, collector, out);
    return collector.finish();
  }
  collector.matrix(TensorRole::token_embedding, 0, c.vocab_size, c.hidden_size, out.embedding);
  collector.vector(TensorRole::output_norm, 0, c.hidden_size, out.output_norm);
  if (!c.tied_embeddings) collector.matrix(TensorRole::output, 0, c.vocab_size, c.hidden_size, out.output, 0, true);
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

// Lets matrices with the same input and the same order of columns share one list, so that the input is reordered once.
void share_orders(DecoderWeights& weights) {
  const auto share = [](std::initializer_list<PackedMatrix*> matrices) {
    for (PackedMatrix* matrix : matrices)
      for (const PackedMatrix* other : matrices)
        if (matrix->input_order && other->input_order && *matrix->input_order == *other->input_order)
          matrix->input_order = other->input_order;
  };
  for (LayerWeights& layer : weights.layers) {
    share({&layer.q.matrix, &layer.k.matrix, &layer.v.matrix});
    share({&layer.gate.matrix, &layer.up.matrix});
  }
}

// Adds the offset to the norm weights once, so that passes need not add it.
void add_to_norms(float offset, DecoderWeights& weights) {
  const auto add = [offset](std::vector<float>& norm) {
    for (float& weight : norm) weight += offset;
  };
  add(weights.output_norm);
  for (LayerWeights& layer : weights.layers)
    for (auto* norm : {&layer.attn_norm, &layer.q_norm, &layer.k_norm, &layer.attn_post_norm, &layer.ffn_norm, &layer.ffn_post_norm})
      add(*norm);
}

// Sets the norms of layers without a feed-forward part: such a layer prepares the input of the next layer with the next layer's norm.
void share_norms(const ModelConfig& config, DecoderWeights& weights) {
  for (std::uint32_t i = 0; i + 1 < weights.layers.size(); ++i)
    if (!config.layer(i).has_feed_forward) weights.layers[i].ffn_norm = weights.layers[i + 1].attn_norm;
}

// Returns an error if a sink is NaN or infinite, because it would corrupt every output.
Result<void> check_sinks(const ModelFile& file, const DecoderWeights& weights) {
  for (std::uint32_t layer = 0; layer < weights.layers.size(); ++layer)
    for (const float sink : weights.layers[layer].sinks)
      if (!std::isfinite(sink))
        return fail(ErrorCode::corrupt, file.name_of(TensorRole::sinks, layer), fmt::format("contains {}, but must be finite", sink),
                    "download the model again");
  return {};
}

std::array<PackedMatrix*, StoredExpert::kParts> matrices_of(ExpertWeights& expert) {
  return {&expert.gate, &expert.up, &expert.down};
}

void mark_streamed(DecoderWeights& weights, std::vector<PackTask>& tasks) {
  std::unordered_set<const PackedMatrix*> routed;
  for (LayerWeights& layer : weights.layers)
    for (std::size_t i = 0; i < layer.num_routed; ++i)
      for (const PackedMatrix* matrix : matrices_of(layer.experts[i])) routed.insert(matrix);
  for (PackTask& task : tasks) task.is_streamed = task.matrix != nullptr && routed.contains(task.matrix);
}

// Sets the quantisation of each task. Routers are not quantised, because small differences decide which experts they choose. The embedding
// and the output matrix become q8_0, because every row uses them.
void mark_quantised(DecoderWeights& weights, WeightQuantisation quantise, std::vector<PackTask>& tasks) {
  if (quantise == WeightQuantisation::none) return;
  std::unordered_map<const PackedMatrix*, WeightQuantisation> wanted;
  for (const PackedMatrix* matrix : {&weights.embedding, &weights.output}) wanted.emplace(matrix, WeightQuantisation::q8_0);
  for (LayerWeights& layer : weights.layers) {
    for (const Linear* linear : {&layer.q, &layer.k, &layer.v, &layer.attn_output, &layer.gate, &layer.up, &layer.down, &layer.state_input,
                                 &layer.state_output, &layer.cross.q, &layer.cross.k, &layer.cross.v, &layer.cross.output})
      wanted.emplace(&linear->matrix, quantise);
    for (const PackedMatrix* matrix : {&layer.state_gate, &layer.latent.q_a, &layer.latent.kv_a}) wanted.emplace(matrix, quantise);
    for (ExpertWeights& expert : layer.experts)
      for (const PackedMatrix* matrix : matrices_of(expert)) wanted.emplace(matrix, quantise);
  }
  for (PackTask& task : tasks)
    if (const auto found = wanted.find(task.matrix); task.matrix != nullptr && found != wanted.end()) task.quantise = found->second;
}

// Returns a function that packs a matrix again from the model. It opens the model again, because this is rarely needed.
RepackFn repacking(const std::string& path, const Sha256Digest& key, WeightQuantisation quantise) {
  return [path, key, quantise](std::uint32_t number, PackedMatrix& matrix) -> Result<void> {
    const auto file = ModelFile::open(path);
    if (!file) return std::unexpected(file.error());
    DecoderWeights unused;
    WhisperTensors none;
    auto tasks = collect(*file, none, unused);
    if (!tasks) return std::unexpected(tasks.error());
    mark_quantised(unused, quantise, *tasks);
    return repack(*file, *tasks, key, number, matrix);
  };
}

StreamedExperts streamed_experts(const std::string& path, DecoderWeights& weights, const std::vector<PackTask>& tasks,
                                 const PackedFile& file, const Sha256Digest& key, const WeightsOptions& options) {
  std::unordered_map<const PackedMatrix*, std::uint32_t> numbers;
  for (const PackTask& task : tasks)
    if (task.matrix != nullptr) numbers.emplace(task.matrix, static_cast<std::uint32_t>(numbers.size()));
  StreamedExperts streamed{.file = file, .experts = {}, .bytes = options.expert_bytes, .repack = repacking(path, key, options.quantise)};
  for (LayerWeights& layer : weights.layers) {
    // The shared expert stays in memory.
    std::vector<StoredExpert>& stored = streamed.experts.emplace_back(layer.experts.size());
    for (std::size_t i = 0; i < layer.num_routed; ++i) {
      const auto matrices = matrices_of(layer.experts[i]);
      for (std::size_t part = 0; part < matrices.size(); ++part) {
        const auto found = numbers.find(matrices[part]);
        if (found == numbers.end()) continue;
        stored[i].parts[part] = matrices[part];
        stored[i].numbers[part] = found->second;
      }
    }
  }
  return streamed;
}

std::uint64_t bytes_of(const LayerWeights& layer) {
  std::uint64_t floats = 0, sum = 0;
  const auto count = [&floats](const auto&... vectors) { ((floats += vectors.size()), ...); };
  count(layer.attn_norm, layer.q_norm, layer.k_norm, layer.attn_post_norm, layer.ffn_norm, layer.ffn_post_norm, layer.cross.norm);
  count(layer.conv_weights, layer.conv_bias, layer.step_bias, layer.state_decay, layer.state_skip, layer.state_norm);
  for (const Linear* linear : {&layer.q, &layer.k, &layer.v, &layer.attn_output, &layer.gate, &layer.up, &layer.down, &layer.state_input,
                               &layer.state_output, &layer.cross.q, &layer.cross.k, &layer.cross.v, &layer.cross.output})
    sum += linear->bytes();
  sum += layer.router.bytes() + layer.shared_weight.bytes() + layer.state_rates.bytes() + layer.state_gate.bytes();
  count(layer.sinks, layer.router_bias, layer.choice_bias, layer.latent.q_a_norm, layer.latent.kv_a_norm);
  sum += layer.latent.q_a.bytes() + layer.latent.kv_a.bytes();
  for (const auto* heads : {&layer.latent.k_up, &layer.latent.v_up})
    for (const PackedMatrix& head : *heads) sum += head.bytes();
  for (const ExpertWeights& expert : layer.experts) {
    sum += expert.gate.bytes() + expert.up.bytes() + expert.down.bytes();
    count(expert.gate_bias, expert.up_bias, expert.down_bias);
  }
  return sum + floats * sizeof(float);
}

}  // namespace

std::uint64_t DecoderWeights::bytes() const {
  std::uint64_t sum = embedding.bytes() + output.bytes() + encoder.first_conv.bytes() + encoder.second_conv.bytes();
  for (const auto* part : {&output_norm, &rope_factors, &rope_long_factors, &positions, &encoder.positions, &encoder.output_norm})
    sum += part->size() * sizeof(float);
  for (const auto* stack : {&layers, &encoder.layers})
    for (const LayerWeights& layer : *stack) sum += bytes_of(layer);
  return sum;
}

std::uint64_t DecoderWeights::streamed_bytes() const {
  return streamed.has_value() ? streamed->bytes : 0;
}

bool DecoderWeights::are_reordered() const {
  const auto is_reordered = [](const Linear& linear) { return linear.matrix.input_order != nullptr; };
  return output.input_order != nullptr || std::ranges::any_of(layers, [&](const LayerWeights& layer) {
           return std::ranges::any_of(std::array{&layer.q, &layer.k, &layer.v, &layer.attn_output, &layer.gate, &layer.up, &layer.down},
                                      [&](const Linear* linear) { return is_reordered(*linear); });
         });
}

Result<DecoderWeights> load_weights(const ModelFile& file, ThreadPool& pool, const PackingOptions& options) {
  DecoderWeights weights;
  WhisperTensors whisper;
  auto tasks = collect(file, whisper, weights);
  if (!tasks) return std::unexpected(std::move(tasks.error()));
  if (auto same = file.check_unchanged(); !same) return std::unexpected(std::move(same.error()));
  const bool streams = options.kept != nullptr && !options.kept->cache_folder.empty() && options.kept->expert_bytes > 0;
  if (streams) mark_streamed(weights, *tasks);
  if (options.kept != nullptr) mark_quantised(weights, options.kept->quantise, *tasks);
  auto packed = pack_weights(file, *tasks, pool, options);
  if (!packed) return std::unexpected(std::move(packed.error()));
  weights.notes = std::move(packed->notes);
  if (const std::optional<PackedFile>& kept = packed->file; streams && kept.has_value())
    weights.streamed = streamed_experts(file.path(), weights, *tasks, *kept, packed->key, *options.kept);
  if (auto same = file.check_unchanged(); !same) return std::unexpected(std::move(same.error()));
  whisper.finish();
  share_orders(weights);
  add_to_norms(file.config().norm_offset, weights);
  share_norms(file.config(), weights);
  if (auto sound = check_sinks(file, weights); !sound) return std::unexpected(std::move(sound.error()));
  if (file.config().state.decay_as_log)
    for (LayerWeights& layer : weights.layers)
      for (float& decay : layer.state_decay) decay = -std::exp(decay);
  const bool longrope = !weights.rope_long_factors.empty();
  for (const auto& [role, factors] :
       {std::pair(longrope ? TensorRole::rope_short_factors : TensorRole::rope_factors, &weights.rope_factors),
        {TensorRole::rope_long_factors, &weights.rope_long_factors}}) {
    for (const float factor : *factors) {
      if (factor > 0.0F && factor < INFINITY) continue;
      return fail(ErrorCode::corrupt, file.name_of(role, 0), fmt::format("contains {}, but must be a positive finite number", factor),
                  "download the model again");
    }
  }
  return weights;
}

}  // namespace quire
