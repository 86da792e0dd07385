#pragma once
// Who has run on blocks which a load was to fill and has not (cures.unloaded_begin_anew). What is computed on such a block is worth no more
// than it, and whoever has found a block of either kind is spoiled as well. What becomes of them: loops/giving_back.h, or they end
// (results/failed_loads.h).
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "base/check.h"
#include "core/kv/kv_cache_manager.h"
#include "core/schedule/requests/plan_arena.h"
#include "core/schedule/requests/queues.h"
#include "core/schedule/requests/request.h"

namespace quire {

class Unloaded {
 public:
  struct Spoiled {
    Request* request;               // it has ended, perhaps
    std::uint32_t num_good_tokens;  // what is computed behind these is worth nothing
  };

  Unloaded(const KvCacheManager& kv, const PlanRing& plans, const Queues& queues) : kv_(kv), plans_(plans), queues_(queues) {}

  // Whom the outstanding plans let run on these blocks, and on what came of that. `applied`: a plan that has just left the ring, or null.
  void find(const PlanArena* applied, std::span<const BlockId> not_loaded);
  // Of the last find(); the blocks are ascending, each once.
  [[nodiscard]] std::span<const Spoiled> spoiled() const { return spoiled_; }
  [[nodiscard]] std::span<const BlockId> bad_blocks() const { return bad_; }
  [[nodiscard]] bool is_spoiled(const Request& request) const { return find_spoiled(request) != nullptr; }
  [[nodiscard]] bool holds_bad(const Request& request) const;

  // For checkpoints (schedule/checkpoint/state_form.h): without a name for each member it does not compile.
  template <class Form, class Self>
  static void fields(Form& /*form*/, Self& self) {
    // What was found counts within a call.
    [[maybe_unused]] auto& [kv, plans, queues, is_bad, bad, spoiled] = self;
  }

 private:
  [[nodiscard]] bool is_bad(BlockId block) const {
    QUIRE_CHECK(block.value < is_bad_.size(), "asked after find(), about a block of the pool");
    return block != kNullBlock && is_bad_[block.value];
  }
  // These return whether that is new.
  bool spoil(BlockId block);
  bool spoil(Request& request, std::uint32_t num_good_tokens);
  bool look_at(const PlanArena& arena);
  bool look_at_delta(Request& request, const BlockTableDelta& delta, std::uint32_t num_computed_tokens);
  bool look_at_running(const PlanArena* applied);

  [[nodiscard]] const Spoiled* find_spoiled(const Request& request) const;
  // Of the blocks that hold the request's first tokens: the first bad one; their number if there is none.
  [[nodiscard]] std::size_t first_bad(std::span<const BlockId> blocks, std::uint32_t group, std::uint32_t num_tokens) const;
  [[nodiscard]] std::uint32_t num_planned_tokens(const Request& request, const PlanArena* applied) const;

  const KvCacheManager& kv_;
  const PlanRing& plans_;
  const Queues& queues_;
  std::vector<bool> is_bad_;  // by block
  std::vector<BlockId> bad_;
  std::vector<Spoiled> spoiled_;
};

}  // namespace quire
