#pragma once
// Forks: a child begins with its parent's tokens, and with the blocks that hold what of them is computed.
//
//   (none) -> waiting       fork: with its share, if the parent has computed anything
//   waiting -> running      as any other; what it has counts as computed (waiting.cpp)
//   waiting -> waiting      give_up_share: its share is gone, and it begins as one that was just added
//
// A block that is not full is shared too, until somebody writes to it (group_manager.cpp). What the parent has in flight does not matter:
// of tokens that are known, it is written before any later plan runs; a token that is not known yet is not the child's. Who filled a block
// does not matter either, but a request whose blocks are being loaded has none to share yet, and a load that failed ends the share.
#include <cstddef>
#include <cstdint>
#include <span>
#include <unordered_map>
#include <vector>

#include "core/kv/kv_cache_manager.h"
#include "core/schedule/requests/context.h"
#include "core/schedule/requests/plan_arena.h"
#include "core/schedule/requests/request.h"
#include "core/schedule/requests/request_table.h"
#include "core/schedule/requests/requests.h"
#include "quire/base/error.h"

namespace quire {

// Called by the facade (fork()), the loops (copies) and whoever needs blocks (give_up_share()), on the core's thread.
class Forks {
 public:
  Forks(Context& context, KvCacheManager& kv, RequestTable& table, Requests& requests)
      : context_(context), kv_(kv), table_(table), requests_(requests) {}

  // Whether the request can have such a child; `num_waiting` wait already.
  [[nodiscard]] Result<void> check(const Request& parent, const ForkRequest& child, std::size_t num_waiting) const;
  // Before the child is created: where the parent's output is held to a grammar, the child's is.
  Result<void> fork_grammar(const Request& parent, const ForkRequest& child);
  // With its share; in no queue yet.
  Request& create(Request& parent, const ForkRequest& given);
  void leave_family(Request& request);         // it has ended
  void leave_sharing(const Request& request);  // it waits no more
  // That of the one forked last, but not the beneficiary's; false: there is none.
  bool give_up_share(EventCause cause, const Request* beneficiary = nullptr);
  // Those that hold one of these blocks of the first cache group, in which nothing has come.
  void give_up_shares_of(std::span<const BlockId> sorted);
  [[nodiscard]] bool is_sharing(const Request& request) const;
  void give_up_share_of(Request& request, EventCause cause);  // it is_sharing()
  // Of blocks that the tokens it was just given are written to.
  void plan_copies(const Request& request, ScheduledKind kind, PlanArena& arena) const;

  [[nodiscard]] std::span<Request* const> sharing() const { return sharing_; }
  [[nodiscard]] const std::unordered_map<std::uint64_t, std::uint32_t>& families() const { return families_; }
  [[nodiscard]] std::uint64_t last_family() const { return last_family_; }

  // For checkpoints (schedule/checkpoint/state_form.h): without a name for each member it does not compile.
  template <class Form, class Self>
  static void fields(Form& form, Self& self) {
    [[maybe_unused]] auto& [context, kv, table, requests, sharing, families, last_family] = self;
    form(sharing, families, last_family);
  }

 private:
  [[nodiscard]] Result<void> check_room(const Request& parent, std::size_t num_waiting) const;
  Request& create_request(const Request& parent, const ForkRequest& given);
  void share_blocks(Request& parent, Request& child);
  void begin_anew(Request& request, EventCause cause);
  void join_family(Request& parent, Request& child);

  Context& context_;
  KvCacheManager& kv_;
  RequestTable& table_;
  Requests& requests_;
  std::vector<Request*> sharing_;                              // forked, and still waiting with blocks; in that order
  std::unordered_map<std::uint64_t, std::uint32_t> families_;  // how many of each are open
  // Families are numbered from 1; 0 in a request means that it has no relatives.
  std::uint64_t last_family_ = 0;
};

}  // namespace quire
