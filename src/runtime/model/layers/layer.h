#pragma once
// The layers of a decoder, which the pass (decoder.h) drives: objects made from a description, each of two halves, or three where an
// encoder is looked at. Another kind of layer is another half, chosen in make_layers().
//
// A half finds each row's stream normed in `input` of the workspace, and prepared for products (Pass::stream_input); it adds what it makes
// of that to the stream, and leaves there what the next half is to find. Any number of passes, one after the other.
#include <memory>
#include <vector>

#include "runtime/kernel/attention.h"
#include "runtime/memory/kv_cache.h"
#include "runtime/model/config/model_config.h"
#include "runtime/model/layers/pass.h"
#include "runtime/model/weights/weights.h"

namespace quire {

// States of a layer, one in a block.
struct StatePages {
  float* pages = nullptr;
  std::uint64_t block_stride = 0;  // floats

  [[nodiscard]] float* of(BlockId block) const { return pages + block.value * block_stride; }
};

// Where a layer keeps what it knows of earlier tokens: keys and values, a state, or both.
struct LayerCache {
  PagedKvLayer kv;
  const GroupPass* attention = nullptr;
  StatePages states;
  const GroupPass* recurrence = nullptr;
  PagedKvLayer cross_kv;  // of what an encoder has made
  const GroupPass* cross = nullptr;
};

// Where the cache has the keys and values of a layer.
PagedKvLayer kv_layer(const KvCache& cache, std::uint32_t layer);

// What looks at earlier tokens.
class AttentionHalf {
 public:
  virtual ~AttentionHalf() = default;
  // Queries, keys and values of every row; keys and values go to the cache. Or the state behind every row, which goes there where it is
  // kept.
  virtual void write_kv(Pass& pass, const LayerCache& cache) const = 0;
  // When keys and values of every row are there; of the rows that go on.
  virtual void attend(Pass& pass, const LayerCache& cache) const = 0;
  // Its first part: what is made of the rows goes to out, row r to out + r * hidden_size, without bias and norm. Of
  // what adapters add to the product with which it ends, and which it returns, the second half is not done.
  virtual Product mix(Pass& pass, const LayerCache& cache, float* out) const = 0;

 protected:
  // How most attend: what mix() makes goes to the stream, with this bias (empty: none), and what is behind it as the layer has it.
  void mix_into_stream(Pass& pass, const LayerCache& cache, const LayerWeights& weights, const std::vector<float>& bias = {}) const;
};

// What looks at what an encoder has made of the request's input.
class CrossHalf {
 public:
  virtual ~CrossHalf() = default;
  virtual void attend(Pass& pass, const LayerCache& cache) const = 0;
};

class FeedForwardHalf {
 public:
  virtual ~FeedForwardHalf() = default;
  virtual void run(Pass& pass) const = 0;
};

// A layer is made once, from a description, and holds no state: any number of models could share one.
struct Layer {
  std::unique_ptr<const AttentionHalf> attention;
  std::unique_ptr<const CrossHalf> cross;  // null: there is none
  std::unique_ptr<const FeedForwardHalf> feed_forward;
};

// `weights` outlive them.
std::vector<Layer> make_layers(const ModelConfig& config, const DecoderWeights& weights);

// Those of an encoder, in which each row sees all.
std::vector<Layer> make_encoder_layers(const ModelConfig& config, const EncoderWeights& weights);

std::unique_ptr<const AttentionHalf> make_latent_attention(const LayerConfig& config, const LayerWeights& weights);
// next_norm: of what follows the layer; null: nothing does.
std::unique_ptr<const AttentionHalf> make_attention(const LayerConfig& config, const LayerWeights& weights);
std::unique_ptr<const AttentionHalf> make_short_conv(const LayerConfig& config, const LayerWeights& weights);
std::unique_ptr<const AttentionHalf> make_mamba2(const LayerConfig& config, const LayerWeights& weights);
std::unique_ptr<const AttentionHalf> make_gated_delta(const LayerConfig& config, const LayerWeights& weights);
// Both, of one input.
std::unique_ptr<const AttentionHalf> make_parallel(const LayerConfig& config, const LayerWeights& weights,
                                                   std::unique_ptr<const AttentionHalf> attention,
                                                   std::unique_ptr<const AttentionHalf> recurrence);
std::unique_ptr<const FeedForwardHalf> make_feed_forward(const LayerConfig& config, const LayerWeights& weights,
                                                         const std::vector<float>* next_norm);
std::unique_ptr<const CrossHalf> make_cross_attention(const LayerConfig& config, const LayerWeights& weights);
std::unique_ptr<const FeedForwardHalf> make_experts(const LayerConfig& config, const LayerWeights& weights,
                                                    const std::vector<float>* next_norm);

}  // namespace quire
