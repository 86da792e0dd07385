#pragma once
// What a pass over the layers is told, and what it gives out.
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
  const Adapter* adapter = nullptr;  // lives until the pass is over
  std::uint32_t num_drafts = 0;      // of its tokens, the last ones: states behind each of them are kept
};

// A row that takes an embedding in the place of its token's.
struct EmbeddedRow {
  std::uint32_t row = 0;
  const float* embedding = nullptr;  // [hidden_size]; lives until the pass is over
};

// With what a row turns by where the model has sections for each (ModelConfig::rope_sections): in a text all three are the same. None is
// beyond the row's place in its request.
struct RopePosition {
  std::uint32_t time = 0, row = 0, column = 0;

  friend bool operator==(const RopePosition&, const RopePosition&) = default;
};

// Rows are the tokens of the sequences, one sequence after the other. Each slot occurs once.
struct BatchInput {
  std::span<const TokenId> tokens;             // [row]
  std::span<const BatchSequence> sequences;    // num_tokens add up to tokens.size()
  std::span<const std::uint32_t> output_rows;  // rows of which something is wanted, ascending, any number of them
  std::span<const EmbeddedRow> embedded = {};  // ascending
  // [row]; empty: each row's place in its request, as where no picture is before it.
  std::span<const RopePosition> rope_positions = {};
  // [row]: the last place of its request that it attends to; empty: its own. What is beyond it is of this pass.
  std::span<const std::uint32_t> last_seen = {};
};

// What a pass gives out of its output rows; what is not wanted is empty.
struct PassOutput {
  std::span<float> logits = {};  // [output row][vocab_size]
  std::span<float> hidden = {};  // [output row][hidden_size]: what the last layer made of the row, normed
  // [row][layer][experts_per_token]: the experts that the row goes through, the likeliest first. Of layers without experts, and in the last
  // layer of rows that are no output rows, it is left as it was.
  std::span<std::uint16_t> experts = {};
};

// Called by the thread that leads the pass, between its phases; may block.
class PassHooks {
 public:
  virtual ~PassHooks() = default;
  // The layer reads and writes its pages of the KV cache from now on.
  virtual void before_attention(std::uint32_t layer) = 0;
  // Keys and values of every row are in the layer's pages.
  virtual void after_kv_write(std::uint32_t layer) = 0;
};

}  // namespace quire
