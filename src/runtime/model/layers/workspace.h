#pragma once
// The buffers of one forward pass, allocated once. Pages that were never used cost no memory. A workspace belongs to one decoder or
// encoder. The thread that leads a pass lays out the rows; in a phase, each thread of the pool writes separate rows and parts. A pass that
// exceeds the limits ends the program.
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
  std::uint32_t positions = 0;      // positions of one sequence
  std::uint32_t groups = 1;         // cache groups
  std::uint32_t max_lora_rank = 0;  // largest rank of an adapter; 0: no pass has adapters
  bool reorders = false;            // some products need reordered inputs
};

// The rotation angles of each row's position.
struct RowAngles {
  float* cosines = nullptr;  // [row][rotary_dim / 2]
  float* sines = nullptr;    // [row][rotary_dim / 2]
};

// Consecutive rows of one request in a layer with a state. After the last of these rows the state is kept.
struct StateStep {
  std::uint32_t row = 0, rows = 0;
  BlockId from;  // has the state before the first row; kNullBlock: the request begins here
  BlockId to;    // receives the state after the last row
};

// The steps of one request.
struct StateRun {
  std::uint32_t first = 0, count = 0;
};

// A row that may share its context with other rows, anywhere in the pass (shared_context.h).
struct DecodeRow {
  std::uint32_t row = 0, out_row = 0;
  std::span<const BlockId> blocks;
  std::uint32_t sharing_set = 0;  // index into GroupPass::sharing_sets
};

// Rows with contexts that begin with the same tokens.
struct SharingSet {
  std::uint32_t first = 0;  // index into GroupPass::decode_rows
  std::uint32_t count = 0;
  std::uint32_t tokens = 0;  // tokens that all rows share; for a single row, the tokens before the row
};

// Attention items or steps of states of a pass, which all layers of one cache group share.
struct GroupPass {
  std::int64_t* kv_slots = nullptr;  // [row]
  std::vector<AttentionItem> items;
  std::vector<AttentionItem> joins;      // rows that several threads compute in segments
  std::vector<DecodeRow> decode_rows;    // deferred rows without a sharing set, while rows are laid out
  std::vector<SharingSet> sharing_sets;  // sets of rows that share, while rows are laid out
  std::vector<SharingRow> sharing;       // rows that share items
  std::uint32_t window = 0;              // in tokens; 0: none
  std::uint32_t item_rows = 0;           // maximum number of rows per item
  std::uint64_t work = 0;                // multiplications in one layer
  std::uint32_t cross = 0;               // encoder positions that every row attends to; 0: self-attention
  std::vector<StateStep> steps;
  std::vector<StateRun> runs;
};

// With fewer attention items per thread, items get fewer rows, and long contexts of single rows are split into segments.
inline constexpr std::uint32_t kItemsPerThread = 2;

// Number of rows per feed-forward tile: enough to be compute-bound, few enough for the CPU's caches.
inline constexpr std::uint32_t kFeedForwardRows = 256;

// Number of encoder rows per attention item.
inline constexpr std::uint32_t kEncoderItemRows = 32;

// Largest number of products that share an input.
inline constexpr std::size_t kNumLoraProducts = 3;

struct Adapter;

// Inputs of a product in the order of its columns.
struct OrderedInput {
  float* x = nullptr;          // [row][columns]
  std::span<std::byte> codes;  // codes of x
};

// Rows with the same adapter.
struct AdapterPart {
  const Adapter* adapter;
  std::uint32_t first, count;  // range of LoraRows::rows
};

// The rows of a pass that have adapters.
struct LoraRows {
  static constexpr std::uint32_t kNoPart = UINT32_MAX;

  std::uint32_t* rows = nullptr;     // [adapted row]: row of the pass; rows of one adapter are adjacent and ascending
  std::uint32_t* part_of = nullptr;  // [row]: index into `parts`, or kNoPart
  float* inner = nullptr;            // [adapted row][kNumLoraProducts][max_rank]: values between the two matrices
  std::uint32_t max_rank = 0;        // 0: no pass has adapters
  std::vector<AdapterPart> parts;

  [[nodiscard]] std::size_t stride() const { return kNumLoraProducts * max_rank; }
  // Returns the adapter of a row, or null.
  [[nodiscard]] const Adapter* of(std::uint32_t row) const {
    return parts.empty() || part_of[row] == kNoPart ? nullptr : parts[part_of[row]].adapter;
  }
};

// The buffers of latent attention, in addition to queries, keys and values.
struct LatentBuffers {
  static constexpr std::uint32_t kRows = 64;  // number of rows per product of a head

  float* q = nullptr;       // [row][head][key_dim + rotary_dim]
  float* q_a = nullptr;     // [row][q_rank]
  float* values = nullptr;  // [row][head][value_dim]
  std::span<std::byte> q_a_codes;
  std::span<std::byte> head_codes;  // [thread]: codes of kRows input rows of a head's product
  std::size_t head_code_bytes = 0;

  [[nodiscard]] std::span<std::byte> codes_of(std::uint32_t thread) const {
    return head_codes.subspan(thread * head_code_bytes, head_code_bytes);
  }
};

// An expert that was chosen for a row, and its weight.
struct ChosenExpert {
  std::uint32_t expert = 0;
  float weight = 0.0F;
};

// The pairs of one expert that was chosen for at least one row.
struct ExpertPart {
  std::uint32_t expert = 0;  // num_experts: the shared expert
  std::uint32_t first = 0;   // first pair
  std::uint32_t count = 0;
  std::size_t in_at = 0, inner_at = 0;  // offsets of the expert's activations, in bytes
  std::uint32_t first_unit = 0;         // in the current phase
};

// Pairs of a row and a chosen expert, sorted by expert, for at most kFeedForwardRows rows.
struct ExpertPairs {
  float* scores = nullptr;          // [row][num_experts + 1]: scores of the router, and the score of the shared expert
  ChosenExpert* chosen = nullptr;   // [row][parts_per_token]
  std::uint32_t* places = nullptr;  // [row][parts_per_token]: index of the pair
  std::uint32_t* rows = nullptr;    // [pair]
  std::uint32_t* ends = nullptr;    // [num_experts + 1]: used to sort pairs; then the experts of the parts
  ExpertPart* parts = nullptr;      // [num_parts]
  std::uint32_t num_parts = 0;
  std::uint32_t first_active = 0, num_active = 0;  // parts whose weights are loaded
  float* stream = nullptr;                         // [pair][hidden_size]: input of an expert, then the expert's output
  float* gate = nullptr;                           // [pair][widest expert]; each expert uses its own width
  float* up = nullptr;                             // [pair][widest expert]; each expert uses its own width
  float* adapted = nullptr;                        // [pair][2][max_lora_rank]: values between the two matrices of adapters
  std::span<std::byte> in_codes, inner_codes;

  [[nodiscard]] std::span<ExpertPart> active() const { return {parts + first_active, num_active}; }
};

// The buffers of a pass, in one allocation. Sizes follow from the limits; memory that smaller passes do not use is never touched.
class Workspace {
 public:
  Workspace(const ModelConfig& config, ActivationMode mode, const WorkspaceLimits& limits);

  [[nodiscard]] const WorkspaceLimits& limits() const { return limits_; }
  [[nodiscard]] std::uint64_t bytes() const { return bytes_; }
  [[nodiscard]] std::span<std::byte> attention_scratch(std::uint32_t thread) const {
    return attention_scratch_.subspan(thread * attention_scratch_bytes_, attention_scratch_bytes_);
  }

  std::uint32_t* positions = nullptr;  // [row]
  std::uint32_t* last_seen = nullptr;  // [row]: the last position that the row attends to
  RowAngles angles;
  RowAngles window_angles;            // for layers with a window, if they rotate differently
  float* hidden = nullptr;            // [row][hidden_size]: the residual stream
  float* input = nullptr;             // [row][hidden_size]: the normed stream, then the product that is added to the stream
  float* qkv = nullptr;               // [row][q, k, v]
  float* mixed = nullptr;             // [row][q_size, or output size of a state]
  float* state_input = nullptr;       // [row][state_row_size], if layers have a state
  float* state_rates = nullptr;       // [row][head]: decays of a scan; for a delta rule decays, then rates
  float* gates = nullptr;             // [row][head][query, gate], if attention is gated
  float* parallel_output = nullptr;   // [row][hidden_size], if a layer both attends and has a state
  float* head_queries = nullptr;      // [head][row][head_dim], in an encoder
  float* head_outputs = nullptr;      // [head][row][head_dim], in an encoder
  std::uint32_t* sources = nullptr;   // [row]: index in the input; differs once only output rows remain
  float* gate = nullptr;              // [kFeedForwardRows][intermediate_size]
  float* up = nullptr;                // [kFeedForwardRows][intermediate_size]
  std::span<std::byte> hidden_codes;  // activations of hidden_size columns
  std::span<std::byte> inner_codes;   // activations of q_size, intermediate_size or state_output_size columns
  OrderedInput ordered[2];            // for two products that run together
  ExpertPairs experts;                // for a mixture of experts
  LatentBuffers latent;               // for latent attention
  LoraRows adapted;
  std::vector<GroupPass> groups;
  float* partials = nullptr;  // for rows that several threads compute in segments; each layer overwrites them

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
