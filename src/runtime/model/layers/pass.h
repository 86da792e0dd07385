#pragma once
// The data that the parts of a decoder share in a forward pass: rows, buffers, and phases in which threads work together.
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

// One of several products with the same input: row r is written to y + r * y_stride.
struct Product {
  const PackedMatrix* matrix = nullptr;
  float* y = nullptr;
  std::size_t y_stride = 0;
  LoraPair LayerAdapter::* adapted = nullptr;  // LoRA matrices of this product (lora_products.h); null: none
};

// Created once with the decoder and reused for each pass. In a phase, threads of the pool write disjoint rows or panels, so phases need no
// locks.
struct Pass {
  Pass(const ModelConfig& config, const Kernels& kernels, ActivationMode mode, const WorkspaceLimits& limits, ThreadPool& pool);

  // for_rows() and multiply() are phases: they return when all of their work is done. Products are split over panels of outputs, other work
  // over rows.
  template <class Body>
  void for_rows(std::uint32_t count, Body body) {  // body(begin, end)
    pool.parallel_for(count, row_grain(count), [&](std::uint32_t begin, std::uint32_t end, std::uint32_t) { body(begin, end); });
  }
  // Computes products with the input x, whose first row is row `first_row` of the pass. Includes the first step of the adapters (a x).
  void multiply(std::span<const Product> products, const Activations& x, std::uint32_t first_row = 0);

  // Returns the inputs in the column order of the matrix: x, or a reordered copy. The copy is made in a phase and is valid until the next
  // copy in the same `place`. Products that run at the same time need different places.
  Activations reordered_input(const PackedMatrix& matrix, const Activations& x, std::size_t place = 0);

  [[nodiscard]] Activations activations(const float* x, std::uint32_t num_rows, std::uint32_t columns, std::span<std::byte> codes) const;
  // Returns the input of the next sublayer.
  [[nodiscard]] Activations stream_input() const;
  // Norms a row of the stream; copies the values if `norm` is empty.
  void norm_row(const float* values, const std::vector<float>& norm, float* out) const;
  // Computes gate = activation(gate) * up over n values, or gate = activation(gate) if the activation has no gate.
  void activate(float* gate, const float* up, std::uint32_t n) const;
  // Adds the result of a sublayer, which is in `input`: stream += scale * post_norm(input + bias). Then, given `next_norm`, sets input =
  // next_norm(stream) and prepares it for products.
  void add_to_stream(const std::vector<float>& bias, const std::vector<float>& post_norm, const std::vector<float>* next_norm,
                     std::uint32_t row_begin, std::uint32_t row_end);

  // Writes the experts of a row to `experts`, if the caller of the pass requested them.
  void record_experts(std::uint32_t row, std::span<const ChosenExpert> chosen) const;

  // Returns the number of rows per task: whole tiles (kRowTile), so that no two threads write to one cache line of activations.
  [[nodiscard]] std::uint32_t row_grain(std::uint32_t count) const;
  [[nodiscard]] std::uint32_t panel_grain(std::uint32_t panels, std::size_t panel_bytes, std::uint32_t num_rows) const;

  LayerShape shape;
  const Kernels& kernels;
  ActivationMode mode;
  ThreadPool& pool;
  Workspace workspace;
  std::uint32_t rows = 0;   // only output rows after the last layer has written keys and values
  std::uint32_t layer = 0;  // the current layer
  std::uint32_t num_layers = 0;
  ExpertStore* stored_experts = nullptr;  // the store that loads experts; null: all are in memory
  std::span<std::uint16_t> experts;       // PassOutput::experts of the current pass
};

}  // namespace quire
