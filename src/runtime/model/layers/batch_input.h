#pragma once
// The inputs and outputs of a pass over the layers.
#include <cstdint>
#include <span>

#include "quire/base/ids.h"

namespace quire {

struct Adapter;

// A run of consecutive tokens of one request.
struct BatchSequence {
  Slot slot;
  std::uint32_t first_position = 0;
  std::uint32_t num_tokens = 0;
  const Adapter* adapter = nullptr;  // must live until the pass is over
  std::uint32_t num_drafts = 0;      // number of draft tokens, which come last; the states after each of them are kept
};

// A row that uses a given embedding instead of its token's embedding.
struct EmbeddedRow {
  std::uint32_t row = 0;
  const float* embedding = nullptr;  // [hidden_size]; must live until the pass is over
};

// Rotary position of a row, in models with rope sections (ModelConfig::rope_sections). For text all three are equal. No component exceeds
// the row's position in its request.
struct RopePosition {
  std::uint32_t time = 0, row = 0, column = 0;

  friend bool operator==(const RopePosition&, const RopePosition&) = default;
};

// Input of a pass. Rows are the tokens of the sequences, one sequence after another. Each slot occurs once.
struct BatchInput {
  std::span<const TokenId> tokens;             // [row]
  std::span<const BatchSequence> sequences;    // the sum of num_tokens is tokens.size()
  std::span<const std::uint32_t> output_rows;  // rows for which outputs are needed, ascending
  std::span<const EmbeddedRow> embedded = {};  // ascending by row
  // [row]; empty: the row's position in its request, which is valid if no image precedes the rows.
  std::span<const RopePosition> rope_positions = {};
  // [row]: the last position of the request that the row attends to; empty: the row's position. Later positions must belong to rows of this
  // pass.
  std::span<const std::uint32_t> last_seen = {};
};

// The outputs of a pass for its output rows. Outputs that are not needed are empty.
struct PassOutput {
  std::span<float> logits = {};  // [output row][vocab_size]
  std::span<float> hidden = {};  // [output row][hidden_size]: output of the last layer, normed
  // [row][layer][experts_per_token]: the chosen experts of each row, the likeliest first. Entries of layers without experts are not
  // changed. In the last layer, only entries of output rows are written.
  std::span<std::uint16_t> experts = {};
};

// Called by the thread that leads the pass, between its phases; may block.
class PassHooks {
 public:
  virtual ~PassHooks() = default;
  // Called before the layer reads or writes its pages of the KV cache.
  virtual void before_attention(std::uint32_t layer) = 0;
  // Called when keys and values of every row are in the layer's pages.
  virtual void after_kv_write(std::uint32_t layer) = 0;
};

}  // namespace quire
