#pragma once
// LoRA adapters: what a folder of PEFT's adds to the linear layers of a model, in a batch beside others and beside none.
//
// y += b (a x), with a [rank][inputs] and b [outputs][rank] times the adapter's scale, in 32-bit floats in an order that depends on the row
// alone: what an adapter's rows get does not depend on which rows, of which adapters, are beside them.
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "format/safetensors.h"
#include "quire/base/error.h"
#include "runtime/kernel/pack.h"
#include "runtime/model/config/model_config.h"

namespace quire {

// No rows: nothing is added.
struct LowRank {
  PackedMatrix a, b;

  [[nodiscard]] bool any() const { return a.rows > 0; }
  [[nodiscard]] std::uint64_t bytes() const { return a.bytes() + b.bytes(); }
};

struct ExpertAdapter {
  LowRank gate, up, down;
};

struct LayerAdapter {
  LowRank q, k, v, attn_output, gate, up, down;
  LowRank state_input, state_rates, state_output;  // of a layer with a state
  std::vector<ExpertAdapter> experts;              // of all, the shared one behind the others; empty: none is changed
};

// Immutable, and read by any thread.
struct Adapter {
  std::vector<LayerAdapter> layers;
  std::vector<float> embedding_a;  // [vocab_size][rank]; empty: the embeddings are the model's
  PackedMatrix embedding_b;        // [hidden_size][rank], times the scale
  LowRank head;
  std::uint32_t rank = 0;  // the largest
  std::string digest;      // SHA-256 of its files, in hex: what its blocks are called by

  [[nodiscard]] std::uint64_t bytes() const;
};

// What `config` (adapter_config.json) and `weights` (adapter_model.safetensors) make of a model of this description; without its digest.
// Errors: `corrupt` (not what PEFT writes; a number that is none; half of a pair), `unsupported` (DoRA, biases, whole matrices, experts as
// one parameter, another kind of adapter; a rank beyond `max_rank`), `invalid_argument` (of a model of another shape); each names the field
// or tensor.
Result<Adapter> read_adapter(std::string_view config, const SafetensorsFile& weights, const ModelConfig& model, std::uint32_t max_rank);

// The same of a folder with both files. Reads and packs all of it on the calling thread. Errors besides: `not_found` (no such folder or
// file), `io`.
Result<std::shared_ptr<const Adapter>> load_adapter(const std::string& folder, const ModelConfig& model, std::uint32_t max_rank);

}  // namespace quire
