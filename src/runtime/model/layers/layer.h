#pragma once
// The layers of a decoder, which the pass (decoder.h) drives. A layer consists of objects made from a description: two halves, or three if
// it attends to an encoder's output. Another kind of layer is another half, chosen in make_layers().
//
// A half finds each row's stream normed in `input` of the workspace, and prepared for products (Pass::stream_input). It adds its result to
// the stream, and leaves in `input` what the next half expects. A layer runs any number of passes, one after another.
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

// The half that uses earlier tokens.
class AttentionSublayer {
 public:
  virtual ~AttentionSublayer() = default;
  // Computes queries, keys and values of every row, and writes keys and values to the cache. A layer with a state computes the state after
  // every row instead, and writes it to the cache where it is kept.
  virtual void write_kv(Pass& pass, const LayerCache& cache) const = 0;
  // Attends for the remaining rows of the pass, after write_kv() for every row.
  virtual void attend(Pass& pass, const LayerCache& cache) const = 0;
  // The first part of attend(): writes the result of row r to out + r * hidden_size, without bias and norm. Returns its last product. The
  // caller must still run the second step of the adapters (LoraProducts::add) for that product.
  virtual Product mix(Pass& pass, const LayerCache& cache, float* out) const = 0;

 protected:
  // The usual attend(): adds the result of mix() and the bias (empty: none) to the stream, and applies the layer's norms.
  void mix_into_stream(Pass& pass, const LayerCache& cache, const LayerWeights& weights, const std::vector<float>& bias = {}) const;
};

// The half that attends to an encoder's output for the request's input.
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

// A layer is made once, from a description, and holds no mutable state: any number of models could share one.
struct Layer {
  std::unique_ptr<const AttentionSublayer> attention;
  std::unique_ptr<const CrossAttentionSublayer> cross;  // null: no cross attention
  std::unique_ptr<const FeedForwardSublayer> feed_forward;
};

// `weights` must outlive the layers.
std::vector<Layer> make_layers(const ModelConfig& config, const DecoderWeights& weights);

// Makes the layers of an encoder, in which each row attends to all rows.
std::vector<Layer> make_encoder_layers(const ModelConfig& config, const EncoderWeights& weights);

std::unique_ptr<const AttentionSublayer> make_latent_attention(const LayerConfig& config, const LayerWeights& weights);
// next_norm: norm of the part that follows the layer; null: nothing follows.
std::unique_ptr<const AttentionSublayer> make_attention(const LayerConfig& config, const LayerWeights& weights);
std::unique_ptr<const AttentionSublayer> make_short_conv(const LayerConfig& config, const LayerWeights& weights);
std::unique_ptr<const AttentionSublayer> make_mamba2(const LayerConfig& config, const LayerWeights& weights);
std::unique_ptr<const AttentionSublayer> make_gated_delta(const LayerConfig& config, const LayerWeights& weights);
// Runs both on one input and adds their results.
std::unique_ptr<const AttentionSublayer> make_parallel(const LayerConfig& config, const LayerWeights& weights,
                                                       std::unique_ptr<const AttentionSublayer> attention,
                                                       std::unique_ptr<const AttentionSublayer> recurrence);
std::unique_ptr<const FeedForwardSublayer> make_feed_forward(const LayerConfig& config, const LayerWeights& weights,
                                                             const std::vector<float>* next_norm);
std::unique_ptr<const CrossAttentionSublayer> make_cross_attention(const LayerConfig& config, const LayerWeights& weights);
std::unique_ptr<const FeedForwardSublayer> make_experts(const LayerConfig& config, const LayerWeights& weights,
                                                        const std::vector<float>* next_norm);

}  // namespace quire
