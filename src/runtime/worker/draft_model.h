#pragma once
// Proposes draft tokens with a smaller model of the same vocabulary: the model's likeliest next tokens, computed one after the other, for
// many requests at a time. The draft model has a separate KV cache, and remembers for each slot which tokens are in this cache. When a
// history differs from these tokens, for example after rejected draft tokens, the draft model computes the tokens from the first difference
// on (catches up).
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "base/thread_pool.h"
#include "quire/base/ids.h"
#include "runtime/memory/block_tables.h"
#include "runtime/memory/kv_cache.h"
#include "runtime/model/model.h"

namespace quire {

struct DraftLimits {
  std::uint32_t max_num_seqs = 0;
  std::uint32_t max_model_len = 0;  // tokens of a request, including draft tokens
  std::uint32_t max_drafts = 0;     // per request
  std::uint32_t max_rows = 0;       // rows of one pass, at least two per request
  std::uint32_t vocab_size = 0;     // of the served model; higher token ids are never proposed
  bool always_draft = false;        // use max_drafts in every step, also if draft tokens do not pay off; for tests
};

struct DraftRequest {
  Slot slot;
  std::span<const TokenId> history;  // prompt and outputs
  std::uint32_t num_drafts = 0;      // at most
};

// Work and times of one call of propose().
struct DraftTimes {
  std::uint32_t num_catch_up_rows = 0;  // rows of the separate pass for catching up
  double catch_up_s = 0.0;
  std::uint32_t num_requests = 0;  // requests with draft tokens
  std::uint32_t num_passes = 0;    // passes over one token of each request
  double pass_s = 0.0;             // total of these passes
};

// A draft model is owned by the worker. The thread that leads the step calls the draft model between passes of the served model. Both
// models use the same thread pool. The constructor allocates all memory. Blocks belong to `cache`. All cache groups keep all tokens,
// including groups with sliding windows, so that rejected draft tokens can be removed.
class DraftModel {
 public:
  // `model` must be loaded with `pool` and with limits that are at least as large as `limits`. The model must not have layers with states.
  DraftModel(const DraftLimits& limits, std::unique_ptr<Model> model, KvCache cache, ThreadPool& pool);

  // Returns the number of tokens of `history` that are not in the cache.
  [[nodiscard]] std::uint32_t num_missing(Slot slot, std::span<const TokenId> history) const;
  // Computes draft tokens for these requests; each slot occurs at most once. A request gets no draft tokens in three cases:
  //  - The request has more tokens to catch up on than fit into one pass. The next call continues.
  //  - Too few blocks are free, or a token is not in the draft model's vocabulary. The request's blocks are freed.
  //  - The request's context is full.
  DraftTimes propose(std::span<const DraftRequest> requests);
  // Returns the draft tokens of the last propose(), by index of the request.
  [[nodiscard]] std::span<const TokenId> drafts(std::size_t request) const;
  // Removes the tokens of the slot from the cache and frees the slot's blocks.
  void release(Slot slot);

  [[nodiscard]] const ModelInfo& info() const { return model_->info(); }
  [[nodiscard]] const DraftLimits& limits() const { return limits_; }
  [[nodiscard]] std::size_t num_free_blocks() const { return free_.size(); }

 private:
  // A request for which propose() computes draft tokens.
  struct Running {
    std::size_t request = 0;
    std::uint32_t num_drafts = 0;  // number of draft tokens to compute for the request
  };
  [[nodiscard]] std::span<TokenId> cached_tokens(Slot slot) const;
  [[nodiscard]] std::uint32_t num_possible(const DraftRequest& request) const;
  [[nodiscard]] bool is_in_vocabulary(std::span<const TokenId> tokens) const;
  // Takes blocks for `num_tokens` tokens. Returns false if there are too few free blocks.
  bool reserve(Slot slot, std::uint32_t num_tokens);
  void catch_up(std::span<const DraftRequest> requests, DraftTimes& times);
  void draft(std::span<const DraftRequest> requests, DraftTimes& times);
  // Adds `tokens` to the pass, after the tokens of the slot that are in the cache.
  void add(Slot slot, std::span<const TokenId> tokens);
  void pass();
  void select_greedy_tokens();

  DraftLimits limits_;
  ThreadPool* pool_;
  std::unique_ptr<Model> model_;
  KvCache cache_;
  BlockTables tables_;
  std::uint32_t num_tokens_;                      // vocabulary that both models share
  std::vector<BlockId> free_;                     // the last one is taken first
  std::unique_ptr<TokenId[]> cached_tokens_;      // [slot][max_model_len]; unwritten pages use no memory
  std::vector<std::uint32_t> num_cached_tokens_;  // by slot
  std::vector<TokenId> drafts_;                   // [request][max_drafts]
  std::vector<std::uint32_t> num_drafts_;         // by request
  std::vector<Running> running_;
  // Inputs of the pass that is being built.
  std::vector<TokenId> tokens_;
  std::vector<BatchSequence> sequences_;
  std::vector<std::uint32_t> output_rows_;
  std::unique_ptr<float[]> logits_;  // [max_num_seqs][vocab_size of the draft model]; unwritten pages use no memory
  std::vector<TokenId> greedy_tokens_;
};

}  // namespace quire
