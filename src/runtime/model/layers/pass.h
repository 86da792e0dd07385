#pragma once
// The data that the parts of a decoder share in a forward pass: its rows, its buffers, and the phases in which threads work together.
#include <cstdint>
#include <span>
#include <vector>

#include "base/thread_pool.h"
#include "runtime/kernel/kernel.h"
#include "runtime/model/config/model_config.h"
#include "runtime/model/layers/workspace.h"
#include "runtime/model/packed/expert_store.h"
#include "runtime/model/weights/adapter.h"

namespace quire {

// One of the products that share an input: row r goes to y + r * y_stride.
struct Product {
  const PackedMatrix* matrix = nullptr;
  float* y = nullptr;
  std::size_t y_stride = 0;
  LoraPair LayerAdapter::* adapted = nullptr;  // the adapters' matrices that are added to it (lora_products.h); null: none
};

// Made once with the decoder and reused for each pass. In a phase, threads of the pool write disjoint rows or panels, so phases need no
// locks.
struct Pass {
  Pass(const ModelConfig& config, const Kernels& kernels, ActivationMode mode, const WorkspaceLimits& limits, ThreadPool& pool);

  // Each of these is a phase: it ends when all of its work is done. Products are split over panels of outputs, other work over rows.
  template <class Body>
  void for_rows(std::uint32_t count, Body body) {  // body(begin, end)
    pool.parallel_for(count, row_grain(count), [&](std::uint32_t begin, std::uint32_t end, std::uint32_t) { body(begin, end); });
  }
  // The first row of x is row `first_row` of the pass. The first step of the adapters' part (a x) is included.
  void multiply(std::span<const Product> products, const Activations& x, std::uint32_t first_row = 0);

  // Returns the inputs in the order that the matrix needs: x, or a copy in the order of the matrix's columns. The copy is made in a phase
  // and is valid until the next one is made in the same `place`. Products that run at the same time need different places.
  Activations reordered_input(const PackedMatrix& matrix, const Activations& x, std::size_t place = 0);

  [[nodiscard]] Activations activations(const float* x, std::uint32_t num_rows, std::uint32_t columns, std::span<std::byte> codes) const;
  // Returns the input of the next half layer.
  [[nodiscard]] Activations stream_input() const;
  // An empty norm leaves the values as they are.
  void norm_row(const float* values, const std::vector<float>& norm, float* out) const;
  // Computes gate = activation(gate) * up over n values, or gate = activation(gate) if the activation has no gate.
  void activate(float* gate, const float* up, std::uint32_t n) const;
  // Adds the result of a half layer, which lies in `input`: stream += scale * post_norm(input + bias). Then, given `next_norm`, sets input
  // = next_norm(stream), prepared.
  void add_to_stream(const std::vector<float>& bias, const std::vector<float>& post_norm, const std::vector<float>* next_norm,
                     std::uint32_t row_begin, std::uint32_t row_end);

  // Writes the experts of a row to `experts`, if the caller of the pass asked for them.
  void record_experts(std::uint32_t row, std::span<const ChosenExpert> chosen) const;

  // Returns whole tiles of rows (kRowTile), so that no two threads write to one cache line of activations.
  [[nodiscard]] std::uint32_t row_grain(std::uint32_t count) const;
  [[nodiscard]] std::uint32_t panel_grain(std::uint32_t panels, std::size_t panel_bytes, std::uint32_t num_rows) const;

  LayerShape shape;
  const Kernels& kernels;
  ActivationMode mode;
  ThreadPool& pool;
  Workspace workspace;
  std::uint32_t rows = 0;   // after the last layer has written keys and values: the output rows
  std::uint32_t layer = 0;  // the current layer
  std::uint32_t num_layers = 0;
  ExpertStore* stored_experts = nullptr;  // the store that loads experts; null: all are in memory
  std::span<std::uint16_t> experts;       // PassOutput::experts of the current pass
};

}  // namespace quire
