#pragma once
// The layers of a decoder, which the decoder runs (decoder.h). A layer consists of sublayers that are created from a description: attention
// and feed-forward, plus cross attention if the decoder attends to an encoder's output. A new kind of layer is a new sublayer, chosen in
// make_layers().
// A sublayer finds each row's normed stream in `input` of the workspace, prepared for products (Pass::stream_input). It adds its result to
// the stream, and leaves the input of the next sublayer in `input`. A layer has no mutable state.
#include <memory>
#include <vector>

#include "runtime/kernel/attention.h"
#include "runtime/memory/kv_cache.h"
#include "runtime/model/config/model_config.h"
#include "runtime/model/layers/pass.h"
#include "runtime/model/weights/weights.h"

namespace quire {

// The states of a layer, one per block.
struct StatePages {
  float* pages = nullptr;
  std::uint64_t block_stride = 0;  // in floats

  [[nodiscard]] float* of(BlockId block) const { return pages + block.value * block_stride; }
};

// The cache of a layer for earlier tokens: keys and values, a state, or both.
struct LayerCache {
  PagedKvLayer kv;
  const GroupPass* attention = nullptr;
  StatePages states;
  const GroupPass* recurrence = nullptr;
  PagedKvLayer cross_kv;  // keys and values of an encoder's output
  const GroupPass* cross = nullptr;
};

// Returns the location of a layer's keys and values in the cache.
PagedKvLayer kv_layer(const KvCache& cache, std::uint32_t layer);

// The sublayer that uses earlier tokens: attention, or a recurrence with a state.
class AttentionSublayer {
 public:
  virtual ~AttentionSublayer() = default;
  // Computes queries, keys and values of every row, and writes keys and values to the cache. A layer with a state instead computes the
  // state after every row, and writes those states to the cache that must be kept.
  virtual void write_kv(Pass& pass, const LayerCache& cache) const = 0;
  // Computes the attention of the pass's current rows. Called after write_kv() of every row.
  virtual void attend(Pass& pass, const LayerCache& cache) const = 0;
  // Does the first part of attend(): writes the result of row r to out + r * hidden_size, without bias and norm. Returns the last product.
  // The caller must then run the second step of the adapters (LoraProducts::add) for this product.
  virtual Product mix(Pass& pass, const LayerCache& cache, float* out) const = 0;

 protected:
  // Implements attend() for most layers: adds the result of mix() and the bias (empty: none) to the stream, and applies the layer's norms.
  void mix_into_stream(Pass& pass, const LayerCache& cache, const LayerWeights& weights, const std::vector<float>& bias = {}) const;
};

// The sublayer that attends to an encoder's output for the request's input.
class CrossAttentionSublayer {
 public:
  virtual ~CrossAttentionSublayer() = default;
  virtual void attend(Pass& pass, const LayerCache& cache) const = 0;
};

class FeedForwardSublayer {
 public:
  virtual ~FeedForwardSublayer() = default;
  virtual void run(Pass& pass) const = 0;
};

// A layer is created once from a description and has no mutable state, so several models could share it.
struct Layer {
  std::unique_ptr<const AttentionSublayer> attention;
  std::unique_ptr<const CrossAttentionSublayer> cross;  // null: no cross attention
  std::unique_ptr<const FeedForwardSublayer> feed_forward;
};

// Creates the layers of a decoder. `weights` must outlive the layers.
std::vector<Layer> make_layers(const ModelConfig& config, const DecoderWeights& weights);

// Creates the layers of an encoder, in which each row attends to all rows.
std::vector<Layer> make_encoder_layers(const ModelConfig& config, const EncoderWeights& weights);

std::unique_ptr<const AttentionSublayer> make_latent_attention(const LayerConfig& config, const LayerWeights& weights);
// Create a sublayer. `next_norm`: norm of the sublayer that follows the layer; null: no sublayer follows.
std::unique_ptr<const AttentionSublayer> make_attention(const LayerConfig& config, const LayerWeights& weights);
std::unique_ptr<const AttentionSublayer> make_short_conv(const LayerConfig& config, const LayerWeights& weights);
std::unique_ptr<const AttentionSublayer> make_mamba2(const LayerConfig& config, const LayerWeights& weights);
std::unique_ptr<const AttentionSublayer> make_gated_delta(const LayerConfig& config, const LayerWeights& weights);
// Creates a sublayer that runs both on one input and adds their results.
std::unique_ptr<const AttentionSublayer> make_parallel(const LayerConfig& config, const LayerWeights& weights,
                                                       std::unique_ptr<const AttentionSublayer> attention,
                                                       std::unique_ptr<const AttentionSublayer> recurrence);
std::unique_ptr<const FeedForwardSublayer> make_feed_forward(const LayerConfig& config, const LayerWeights& weights,
                                                             const std::vector<float>* next_norm);
std::unique_ptr<const CrossAttentionSublayer> make_cross_attention(const LayerConfig& config, const LayerWeights& weights);
std::unique_ptr<const FeedForwardSublayer> make_experts(const LayerConfig& config, const LayerWeights& weights,
                                                        const std::vector<float>* next_norm);

}  // namespace quire
