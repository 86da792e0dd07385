// Divides the single allocation of a pass into its buffers. Called once, when a model is loaded, with the limits for all passes. The same
// function computes the total size and assigns the buffers, so both always match.
#include "runtime/model/layers/workspace.h"

#include <algorithm>
#include <utility>

#include "runtime/kernel/matmul.h"

namespace quire {
namespace {

constexpr std::size_t kAlign = 64;

constexpr std::size_t round_up(std::size_t bytes) {
  return (bytes + kAlign - 1) / kAlign * kAlign;
}

// Counts the bytes of the parts if base is null; otherwise assigns the parts.
class Carver {
 public:
  explicit Carver(std::byte* base) : base_(base) {}

  template <class T>
  void take(T*& part, std::size_t count) {
    part = reinterpret_cast<T*>(take_bytes(count * sizeof(T)).data());
  }
  std::span<std::byte> take_bytes(std::size_t bytes) {
    const std::size_t begin = used_;
    used_ += round_up(bytes);
    return base_ == nullptr ? std::span<std::byte>{} : std::span(base_ + begin, bytes);
  }
  [[nodiscard]] std::size_t used() const { return used_; }

 private:
  std::byte* base_;
  std::size_t used_ = 0;
};

// Returns the bytes for codes; 0 for widths that integer formats do not support, which float models may have.
std::size_t code_bytes(ActivationMode mode, std::size_t rows, std::uint32_t columns) {
  return columns % 32 == 0 ? activation_scratch_bytes(mode, static_cast<std::uint32_t>(rows), columns) : 0;
}

// Returns the bytes for codes that are separate for each expert: an expert's last tile may have a single row, and each of its parts begins
// on a cache line.
std::size_t apart_code_bytes(ActivationMode mode, std::size_t pairs, std::size_t experts, std::uint32_t columns) {
  constexpr std::size_t kParts = 5;  // parts in make_activations()
  const std::size_t used = std::min(pairs, experts);
  return code_bytes(mode, pairs + used * (kRowTile - 1), columns) + used * kParts * kAlign;
}

void carve_experts(Carver& carver, const ModelConfig& config, ActivationMode mode, std::size_t rows, ExpertPairs& out) {
  if (config.num_experts == 0) return;
  const std::size_t pairs = rows * config.parts_per_token();
  const std::size_t experts = std::size_t{config.num_experts} + 1;
  carver.take(out.scores, rows * experts);
  carver.take(out.chosen, pairs);
  carver.take(out.places, pairs);
  carver.take(out.rows, pairs);
  carver.take(out.ends, experts);
  carver.take(out.parts, std::min(pairs, experts));
  carver.take(out.stream, pairs * config.hidden_size);
  const std::size_t widest = std::max(config.expert_size, config.shared_expert_size);
  carver.take(out.gate, pairs * widest);
  carver.take(out.up, pairs * widest);
  out.in_codes = carver.take_bytes(apart_code_bytes(mode, pairs, experts, config.hidden_size));
  out.inner_codes = carver.take_bytes(apart_code_bytes(mode, rows * config.experts_per_token, config.num_experts, config.expert_size) +
                                      apart_code_bytes(mode, rows, 1, config.shared_expert_size));
}

void carve_latents(Carver& carver, const ModelConfig& config, ActivationMode mode, const WorkspaceLimits& limits, LatentBuffers& out) {
  const LatentShape& shape = config.latent;
  if (shape.kv_rank == 0) return;
  const std::size_t rows = limits.rows;
  carver.take(out.q, rows * config.num_heads * (shape.key_dim + config.rotary_dim));
  carver.take(out.q_a, rows * shape.q_rank);
  carver.take(out.values, rows * config.attended_size());
  out.q_a_codes = carver.take_bytes(shape.q_rank == 0 ? 0 : code_bytes(mode, rows, shape.q_rank));
  out.head_code_bytes =
      round_up(std::max(code_bytes(mode, LatentBuffers::kRows, shape.key_dim), code_bytes(mode, LatentBuffers::kRows, shape.kv_rank)));
  out.head_codes = carver.take_bytes(out.head_code_bytes * limits.threads);
}

}  // namespace

Workspace::Workspace(const ModelConfig& config, ActivationMode mode, const WorkspaceLimits& limits)
    : groups(limits.groups), limits_(limits) {
  const std::size_t rows = limits.rows;
  const std::size_t ffn_rows = std::min(limits.rows, kFeedForwardRows);
  const std::size_t code_rows = std::max(limits.rows, limits.sequences);
  const std::size_t shared_rows = std::size_t{kItemsPerThread} * limits.threads;
  const std::size_t segments = std::max(limits.positions, config.cross_positions) / kSegmentTokens + 1;
  const std::uint32_t queries = config.is_bidirectional ? kEncoderItemRows : config.group();
  attention_scratch_bytes_ = round_up(quire::attention_scratch_bytes(config.head_dim, queries));
  const bool has_states = config.state.kind != StateKind::none;
  const bool has_both = std::ranges::find(config.layer_memories, LayerMemory::both) != config.layer_memories.end();
  const std::uint32_t state_output = has_states ? config.state_output_size() : 0;
  adapted.max_rank = limits.max_lora_rank;
  const auto carve = [&](std::byte* base) {
    Carver carver(base);
    carver.take(positions, rows);
    carver.take(last_seen, rows);
    for (GroupPass& group : groups) carver.take(group.kv_slots, rows);
    const std::size_t pairs = config.rotary_dim / 2;
    const std::size_t window_pairs = config.window_rope_theta == 0.0 ? 0 : pairs;
    for (const auto& [part, count] : {std::pair{&angles, pairs}, {&window_angles, window_pairs}}) {
      carver.take(part->cosines, rows * count);
      carver.take(part->sines, rows * count);
    }
    carver.take(hidden, rows * config.hidden_size);
    carver.take(input, rows * config.hidden_size);
    carver.take(qkv, rows * config.qkv_size());
    carver.take(mixed, rows * std::max(config.q_size(), state_output));
    for (float** part : {&head_queries, &head_outputs}) carver.take(*part, rows * (config.is_bidirectional ? config.q_size() : 0));
    carver.take(sources, rows);
    carver.take(state_input, rows * (has_states ? config.state_row_size() : 0));
    carver.take(state_rates, 2 * rows * config.state.heads);
    carver.take(gates, rows * (config.gated_attention ? 2 * config.q_size() : 0));
    carver.take(parallel_output, rows * (has_both ? config.hidden_size : 0));
    carver.take(gate, ffn_rows * config.intermediate_size);
    carver.take(up, ffn_rows * config.intermediate_size);
    hidden_codes = carver.take_bytes(code_bytes(mode, code_rows, config.hidden_size));
    inner_codes = carver.take_bytes(std::max({code_bytes(mode, rows, config.attended_size()), code_bytes(mode, rows, state_output),
                                              code_bytes(mode, ffn_rows, config.intermediate_size)}));
    const std::size_t wide = std::max({config.hidden_size, config.attended_size(), state_output});
    for (OrderedInput& part : ordered) {
      if (!limits.reorders) break;
      carver.take(part.x, std::max(code_rows * wide, ffn_rows * config.intermediate_size));
      part.codes =
          carver.take_bytes(std::max({code_bytes(mode, code_rows, config.hidden_size), code_bytes(mode, rows, config.attended_size()),
                                      code_bytes(mode, rows, state_output), code_bytes(mode, ffn_rows, config.intermediate_size)}));
    }
    carve_experts(carver, config, mode, ffn_rows, experts);
    if (config.num_experts > 0) carver.take(experts.adapted, ffn_rows * config.parts_per_token() * 2 * limits.max_lora_rank);
    carve_latents(carver, config, mode, limits, latent);
    if (limits.max_lora_rank > 0) {
      carver.take(adapted.rows, rows);
      carver.take(adapted.part_of, rows);
      carver.take(adapted.inner, std::max(rows, std::size_t{limits.sequences}) * adapted.stride());
    }
    carver.take(partials, shared_rows * segments * attention_partial_floats(config.head_dim, config.group()));
    attention_scratch_ = carver.take_bytes(attention_scratch_bytes_ * limits.threads);
    return carver.used();
  };
  bytes_ = carve(nullptr);
  storage_.reset(static_cast<std::byte*>(::operator new(bytes_, std::align_val_t{kAlign})));
  carve(storage_.get());
  if (limits.max_lora_rank > 0) adapted.parts.reserve(limits.sequences);
  for (GroupPass& group : groups) {
    // If each row attends to all positions, each row is a separate item.
    const bool by_row = config.cross_positions > 0 || (config.vision && config.vision->attends_bidirectionally);
    const std::size_t row_items = by_row ? rows : limits.rows / kAttentionItemRows + limits.sequences;
    // When items get fewer rows, there are less than twice as many items as wanted.
    group.items.reserve(std::max(config.num_kv_heads * row_items, 2 * shared_rows) + shared_rows * segments);
    group.joins.reserve(shared_rows);
    group.decode_rows.reserve(limits.sequences);
    group.sharing_sets.reserve(limits.sequences);
    group.sharing.reserve(limits.sequences);
    if (!has_states) continue;
    group.steps.reserve(std::size_t{limits.rows} + limits.sequences);
    group.runs.reserve(limits.sequences);
  }
}

}  // namespace quire
