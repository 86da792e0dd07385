#pragma once
// Forks: a child begins with its parent's tokens, and with the blocks of the computed ones.
//
//   (none) -> waiting       fork: with its share, if the parent has computed anything
//   waiting -> running      like any other request; its shared tokens count as computed (waiting.cpp)
//   waiting -> waiting      release_a_share: its share is gone, and it begins like a request that was just added
//
// A block that is not full is shared too, until a holder writes to it (group_manager.cpp). The parent's tokens in flight do not matter:
// known tokens are written before any later plan runs, and unknown tokens do not belong to the child. It does not matter which request
// filled a block. But a request with blocks that are being loaded has none to share yet, and a failed load ends the share.
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

// Called by the facade (fork()), the loops (copies) and parts that need blocks (release_a_share()), on the core's thread.
class Forks {
 public:
  Forks(Context& context, KvCacheManager& kv, RequestTable& table, Requests& requests)
      : context_(context), kv_(kv), table_(table), requests_(requests) {}

  // Checks whether the request can have such a child; `num_waiting` requests wait already.
  [[nodiscard]] Result<void> check(const Request& parent, const ForkRequest& child, std::size_t num_waiting) const;
  // Called before the child is created. Forks the grammar if the parent's output is constrained by one.
  Result<void> fork_grammar(const Request& parent, const ForkRequest& child);
  // Creates the child with its share, in no queue yet.
  Request& create(Request& parent, const ForkRequest& given);
  void leave_family(Request& request);        // called when it has ended
  void stop_sharing(const Request& request);  // called when it no longer waits
  // Gives up the share of the request forked last, other than the beneficiary. False: there is no such request.
  bool release_a_share(EventCause cause, const Request* beneficiary = nullptr);
  // Gives up the shares that hold one of these blocks, which a failed load has not filled. The blocks belong to the first cache group.
  void release_shares_of(std::span<const BlockId> sorted);
  [[nodiscard]] bool is_sharing(const Request& request) const;
  void release_share_of(Request& request, EventCause cause);  // requires is_sharing()
  // Plans copies of shared blocks that the newly scheduled tokens are written to.
  void plan_copies(const Request& request, ScheduledKind kind, PlanArena& arena) const;

  [[nodiscard]] std::span<Request* const> sharing() const { return sharing_; }
  [[nodiscard]] const std::unordered_map<std::uint64_t, std::uint32_t>& families() const { return families_; }
  [[nodiscard]] std::uint64_t last_family() const { return last_family_; }

  // Lists the members for checkpoints (schedule/checkpoint/state_archive.h). The binding must name every member to compile.
  template <class Archive, class Self>
  static void fields(Archive& form, Self& self) {
    [[maybe_unused]] auto& [context, kv, table, requests, sharing, families, last_family] = self;
    form(sharing, families, last_family);
  }

 private:
  [[nodiscard]] Result<void> check_room(const Request& parent, std::size_t num_waiting) const;
  Request& create_request(const Request& parent, const ForkRequest& given);
  void share_blocks(Request& parent, Request& child);
  void start_again(Request& request, EventCause cause);
  void join_family(Request& parent, Request& child);

  Context& context_;
  KvCacheManager& kv_;
  RequestTable& table_;
  Requests& requests_;
  std::vector<Request*> sharing_;                              // waiting forks that hold shared blocks, in the order of the forks
  std::unordered_map<std::uint64_t, std::uint32_t> families_;  // number of open requests per family
  // Families are numbered from 1; 0 in a request means that it has no relatives.
  std::uint64_t last_family_ = 0;
};

}  // namespace quire
