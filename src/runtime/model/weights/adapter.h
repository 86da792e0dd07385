#pragma once
// LoRA adapters: a PEFT folder adds low-rank terms to the linear layers of a model. Rows with different adapters, or without an adapter,
// share a batch.
//
// y += b (a x), with a [rank][inputs] and b [outputs][rank] times the adapter's scale. The sums are 32-bit floats in an order that depends
// only on the row, so the result of a row does not depend on other rows and their adapters.
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

// The two low-rank matrices of a linear layer. No rows: the layer is not adapted.
struct LoraPair {
  PackedMatrix a, b;

  [[nodiscard]] bool any() const { return a.rows > 0; }
  [[nodiscard]] std::uint64_t bytes() const { return a.bytes() + b.bytes(); }
};

struct ExpertAdapter {
  LoraPair gate, up, down;
};

struct LayerAdapter {
  LoraPair q, k, v, attn_output, gate, up, down;
  LoraPair state_input, state_rates, state_output;  // for a layer with a state
  std::vector<ExpertAdapter> experts;               // [expert], the shared expert last; empty: no expert is adapted
};

// The weights of a LoRA adapter. Immutable, so any thread may read them.
struct Adapter {
  std::vector<LayerAdapter> layers;
  std::vector<float> embedding_a;  // [vocab_size][rank]; empty: the embeddings are not adapted
  PackedMatrix embedding_b;        // [hidden_size][rank], times the scale
  LoraPair head;
  std::uint32_t rank = 0;  // the largest rank of all pairs
  std::string digest;      // SHA-256 of its files, in hex; an extra key of its blocks' hashes

  [[nodiscard]] std::uint64_t bytes() const;
};

// Reads an adapter for a model of this description from `config` (adapter_config.json) and `weights` (adapter_model.safetensors), without
// its digest. Each error names the field or tensor:
// - `corrupt`: not a file that PEFT writes; NaN or Inf; one matrix of a pair is missing;
// - `unsupported`: DoRA, biases, whole matrices, experts as one parameter, another kind of adapter; a rank above `max_rank`;
// - `invalid_argument`: the adapter is for a model of another shape.
Result<Adapter> read_adapter(std::string_view config, const SafetensorsFile& weights, const ModelConfig& model, std::uint32_t max_rank);

// Reads an adapter from a folder with both files, including its digest. Reads and packs the whole adapter on the calling thread. Additional
// errors: `not_found` (no such folder or file), `io`.
Result<std::shared_ptr<const Adapter>> load_adapter(const std::string& folder, const ModelConfig& model, std::uint32_t max_rank);

}  // namespace quire
