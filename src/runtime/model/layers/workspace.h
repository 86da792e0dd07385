#pragma once
// The buffers of one forward pass, taken once. Pages that no pass has used yet cost no memory.
// Belongs to one decoder. The thread that leads a pass says what is where; in a phase the threads of the pool write rows and parts of their
// own. No pass may ask for more than the limits: that is a broken invariant.
#include <cstddef>
#include <cstdint>
#include <memory>
#include <new>
#include <span>
#include <vector>

#include "quire/base/ids.h"
#include "quire/base/options.h"
#include "runtime/kernel/attention.h"
#include "runtime/model/config/model_config.h"

namespace quire {

struct WorkspaceLimits {
  std::uint32_t rows = 0;
  std::uint32_t sequences = 0;
  std::uint32_t threads = 0;
  std::uint32_t positions = 0;      // of one sequence
  std::uint32_t groups = 1;         // cache groups
  std::uint32_t max_lora_rank = 0;  // of adapters; 0: no pass has any
  bool reorders = false;            // some products want their inputs in another order
};

// Of each row's position.
struct RowAngles {
  float* cosines = nullptr;  // [row][rotary_dim / 2]
  float* sines = nullptr;    // same
};

// Rows of one request that go through a layer with a state one after the other, up to where the state is kept.
struct StateStep {
  std::uint32_t row = 0, rows = 0;
  BlockId from;  // has the state before the first row; kNullBlock: there is none, the request begins
  BlockId to;    // gets the state behind the last row
};

// The steps of one request.
struct StateRun {
  std::uint32_t first = 0, count = 0;
};

// A row that may share its context with others, which need not lie beside it (shared_context.h).
struct LoneRow {
  std::uint32_t row = 0, out_row = 0;
  std::span<const BlockId> blocks;
  std::uint32_t sharers = 0;  // of which it is one
};

// Rows whose contexts begin with the same tokens.
struct Sharers {
  std::uint32_t first = 0;  // of GroupPass::lone
  std::uint32_t count = 0;
  std::uint32_t tokens = 0;  // that all of them share; of one row alone those before it
};

// What attends in a pass, or goes through states, the same in all layers of one cache group.
struct GroupPass {
  std::int64_t* kv_slots = nullptr;  // [row]
  std::vector<AttentionItem> items;
  std::vector<AttentionItem> joins;  // rows whose context threads share
  std::vector<LoneRow> lone;         // while rows are laid out
  std::vector<Sharers> sharers;      // same
  std::vector<SharingRow> sharing;   // those that items have together
  std::uint32_t window = 0;          // tokens; 0: none
  std::uint64_t work = 0;            // multiplications, in one layer
  std::uint32_t cross = 0;           // positions that every row sees, of what an encoder has made; 0: attention is to the request's own
  std::vector<StateStep> steps;
  std::vector<StateRun> runs;
};

// Fewer attention items than this per thread are cut into segments of the context, where these are long enough.
inline constexpr std::uint32_t kItemsPerThread = 2;

// Rows that go through the feed-forward part together: enough to be bound by arithmetic, few enough for the cache.
inline constexpr std::uint32_t kFeedForwardRows = 256;

// Rows of an encoder that walk over keys and values together.
inline constexpr std::uint32_t kEncoderItemRows = 32;

// Products that share an input, at most.
inline constexpr std::size_t kAdaptedProducts = 3;

struct Adapter;

// Inputs of a product in the order of its columns.
struct OrderedInput {
  float* x = nullptr;          // [row][columns]
  std::span<std::byte> codes;  // of them
};

// Rows that run with one adapter.
struct AdapterPart {
  const Adapter* adapter;
  std::uint32_t first, count;  // of AdaptedRows::rows
};

// The rows of a pass that run with adapters.
struct AdaptedRows {
  static constexpr std::uint32_t kNoPart = UINT32_MAX;

  std::uint32_t* rows = nullptr;     // [of them]: row; those of one adapter together, and ascending
  std::uint32_t* part_of = nullptr;  // [row]: which part it is of, or kNoPart
  float* inner = nullptr;            // [of them][kAdaptedProducts][max_rank]: what lies between the two matrices
  std::uint32_t max_rank = 0;        // 0: no pass has any
  std::vector<AdapterPart> parts;

  [[nodiscard]] std::size_t stride() const { return kAdaptedProducts * max_rank; }
  // Null: none.
  [[nodiscard]] const Adapter* of(std::uint32_t row) const {
    return parts.empty() || part_of[row] == kNoPart ? nullptr : parts[part_of[row]].adapter;
  }
};

// What latent attention needs beside queries, keys and values.
struct LatentBuffers {
  static constexpr std::uint32_t kRows = 64;  // that go through a head's products at once

  float* q = nullptr;       // [row][head][key_dim + rotary_dim]
  float* q_a = nullptr;     // [row][q_rank]
  float* values = nullptr;  // [row][head][value_dim]
  std::span<std::byte> q_a_codes;
  std::span<std::byte> head_codes;  // [thread]: of kRows rows that go into a head's product
  std::size_t head_code_bytes = 0;

  [[nodiscard]] std::span<std::byte> codes_of(std::uint32_t thread) const {
    return head_codes.subspan(thread * head_code_bytes, head_code_bytes);
  }
};

// One of the feed-forward parts that a row goes through.
struct ChosenExpert {
  std::uint32_t expert = 0;
  float weight = 0.0F;
};

// The pairs of one expert that somebody goes through.
struct ExpertPart {
  std::uint32_t expert = 0;  // num_experts: the shared one
  std::uint32_t first = 0;   // pair
  std::uint32_t count = 0;
  std::size_t in_at = 0, inner_at = 0;  // where its activations begin, bytes
  std::uint32_t first_unit = 0;         // of the phase under way
};

// Pairs of a row and an expert that it goes through, those of one expert together; of kFeedForwardRows rows at most.
struct ExpertPairs {
  float* scores = nullptr;          // [row][num_experts + 1]: what the router gives, and the weight of the shared one
  ChosenExpert* chosen = nullptr;   // [row][parts_per_token]
  std::uint32_t* places = nullptr;  // the same: which pair it is
  std::uint32_t* rows = nullptr;    // [pair]
  std::uint32_t* ends = nullptr;    // [num_experts + 1]: while pairs are ordered; then the experts of the parts
  ExpertPart* parts = nullptr;      // [num_parts]
  std::uint32_t num_parts = 0;
  std::uint32_t first_active = 0, num_active = 0;  // whose turn it is
  float* stream = nullptr;                         // [pair][hidden_size]: what goes into an expert, and then what comes out
  float* gate = nullptr;                           // [pair][widest expert], of which each expert takes its own width
  float* up = nullptr;                             // same
  float* adapted = nullptr;                        // [pair][2][max_lora_rank]: what lies between the two matrices of adapters
  std::span<std::byte> in_codes, inner_codes;

  [[nodiscard]] std::span<ExpertPart> active() const { return {parts + first_active, num_active}; }
};

// One allocation for all buffers of a pass. Sizes follow from the limits; what a smaller pass does not use is never touched.
class Workspace {
 public:
  Workspace(const ModelConfig& config, ActivationMode mode, const WorkspaceLimits& limits);

  [[nodiscard]] const WorkspaceLimits& limits() const { return limits_; }
  [[nodiscard]] std::uint64_t bytes() const { return bytes_; }
  [[nodiscard]] std::span<std::byte> attention_scratch(std::uint32_t thread) const {
    return attention_scratch_.subspan(thread * attention_scratch_bytes_, attention_scratch_bytes_);
  }

  std::uint32_t* positions = nullptr;  // [row]
  std::uint32_t* last_seen = nullptr;  // [row]: the last position that it attends to
  RowAngles angles;
  RowAngles window_angles;            // where layers with a window rotate in a way of their own
  float* hidden = nullptr;            // [row][hidden_size]: the residual stream
  float* input = nullptr;             // [row][hidden_size]: the stream normed for a product, then the product added to the stream
  float* qkv = nullptr;               // [row][q, k, v]
  float* mixed = nullptr;             // [row][q_size, or what comes out of a state]
  float* state_input = nullptr;       // [row][state_row_size], where layers have a state
  float* state_rates = nullptr;       // [row][head]: decays of a scan; of a delta rule decays, then rates
  float* gates = nullptr;             // [row][head][query, gate], where attention is gated
  float* beside = nullptr;            // [row][hidden_size], where a layer both attends and has a state
  float* head_queries = nullptr;      // [head][row][head_dim], of an encoder
  float* head_outcomes = nullptr;     // same
  std::uint32_t* sources = nullptr;   // [row]: which row of the input it was; others than itself when only the output rows go on
  float* gate = nullptr;              // [kFeedForwardRows][intermediate_size]
  float* up = nullptr;                // same
  std::span<std::byte> hidden_codes;  // activations of hidden_size columns
  std::span<std::byte> inner_codes;   // of q_size, of intermediate_size and of state_output_size columns
  OrderedInput ordered[2];            // for two products at once
  ExpertPairs experts;                // of a mixture
  LatentBuffers latent;               // of latent attention
  AdaptedRows adapted;
  std::vector<GroupPass> groups;
  float* partials = nullptr;  // of the rows whose context threads share; each layer writes them anew

 private:
  struct Free {
    void operator()(std::byte* bytes) const { ::operator delete(bytes, std::align_val_t{64}); }
  };

  WorkspaceLimits limits_;
  std::uint64_t bytes_ = 0;
  std::size_t attention_scratch_bytes_ = 0;
  std::span<std::byte> attention_scratch_;
  std::unique_ptr<std::byte, Free> storage_;
};

}  // namespace quire
