#pragma once
// Drafts by a smaller model of the same vocabulary: its likeliest next tokens, one after the other, of many requests at once. It has a KV
// cache of its own, and remembers for each slot which tokens are in it: what a history has become is what it has to catch up with, and
// drafts that were wrong are where the two part.
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
  std::uint32_t max_model_len = 0;  // tokens of a request and its drafts
  std::uint32_t max_drafts = 0;     // of a request
  std::uint32_t max_rows = 0;       // of one pass, two for each request at least
  std::uint32_t vocab_size = 0;     // of the model that verifies them: what is beyond is no draft
  bool whatever_they_cost = false;  // max_drafts in every step, whether they pay or not: what tests can count on
};

struct DraftRequest {
  Slot slot;
  std::span<const TokenId> history;  // prompt and outputs
  std::uint32_t num_drafts = 0;      // at most
};

// What a call of propose() took.
struct DraftTimes {
  std::uint32_t num_fed_rows = 0;  // caught up with in a pass of its own
  double feed_s = 0.0;
  std::uint32_t num_requests = 0;  // that have drafts
  std::uint32_t num_passes = 0;    // of one token of each
  double pass_s = 0.0;             // of all these
};

// Owned by the worker, called between passes of its model by the thread that leads the step; computes on the same pool. Memory is taken
// once. Blocks are of the cache given, in groups that keep all tokens, windows too, so that wrong drafts can be taken back.
class DraftModel {
 public:
  // `model` was loaded with `pool` and limits no smaller; it keeps keys and values alone.
  DraftModel(const DraftLimits& limits, std::unique_ptr<Model> model, KvCache cache, ThreadPool& pool);

  // Tokens of the history that the cache lacks.
  [[nodiscard]] std::uint32_t num_missing(Slot slot, std::span<const TokenId> history) const;
  // Drafts of these requests, each slot once. Who has more to catch up with than one pass holds goes on in the next call, and has none
  // before; nor has who finds no blocks (his own are given back) or no room in the context, or says a token that the model does not know.
  DraftTimes propose(std::span<const DraftRequest> requests);
  // Of the last propose(), by request.
  [[nodiscard]] std::span<const TokenId> drafts(std::size_t request) const;
  // Forgets the slot, which may be forgotten already.
  void release(Slot slot);

  [[nodiscard]] const ModelInfo& info() const { return model_->info(); }
  [[nodiscard]] const DraftLimits& limits() const { return limits_; }
  [[nodiscard]] std::size_t num_free_blocks() const { return free_.size(); }

 private:
  // A request within propose().
  struct Running {
    std::size_t request = 0;
    std::uint32_t num_drafts = 0;  // that it will have
  };
  [[nodiscard]] std::span<TokenId> seen(Slot slot) const;
  [[nodiscard]] std::uint32_t num_possible(const DraftRequest& request) const;
  [[nodiscard]] bool knows(std::span<const TokenId> tokens) const;
  // Blocks for so many tokens; false: there are too few.
  bool reserve(Slot slot, std::uint32_t num_tokens);
  void feed(std::span<const DraftRequest> requests, DraftTimes& times);
  void draft(std::span<const DraftRequest> requests, DraftTimes& times);
  // To the pass: `tokens` behind those that the slot's cache holds.
  void add(Slot slot, std::span<const TokenId> tokens);
  void pass();
  void take_likeliest();

  DraftLimits limits_;
  ThreadPool* pool_;
  std::unique_ptr<Model> model_;
  KvCache cache_;
  BlockTables tables_;
  std::uint32_t num_tokens_;               // of the vocabularies of both
  std::vector<BlockId> free_;              // the last goes first
  std::unique_ptr<TokenId[]> seen_;        // [slot][max_model_len]; pages never written cost nothing
  std::vector<std::uint32_t> num_seen_;    // by slot
  std::vector<TokenId> drafts_;            // [request][max_drafts]
  std::vector<std::uint32_t> num_drafts_;  // by request
  std::vector<Running> running_;
  // Of the pass that is put together.
  std::vector<TokenId> tokens_;
  std::vector<BatchSequence> sequences_;
  std::vector<std::uint32_t> output_rows_;
  std::unique_ptr<float[]> logits_;  // [max_num_seqs][vocab_size of the draft model]; the same
  std::vector<TokenId> likeliest_;
};

}  // namespace quire
