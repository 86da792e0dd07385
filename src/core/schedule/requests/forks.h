#pragma once
// Forks: a child begins with its parent's tokens, and shares the blocks of the computed tokens.
//
//   (none) -> waiting       fork: with shared blocks, if the parent has computed tokens
//   waiting -> running      like any other request; its shared tokens count as computed (waiting.cpp)
//   waiting -> waiting      release_a_share: its shared blocks are released, and it begins like a new request
//
// A block that is not full is shared too, until one of the requests writes to it (group_manager.cpp). Tokens of the parent in flight need
// no special care: known tokens are written before any later plan runs, and unknown tokens do not belong to the child. A parent whose
// blocks are being loaded shares none, and a failed load ends the sharing of the affected blocks.
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

// Called on the core's thread by Core::fork(), by the loops (copies) and by code that needs blocks (release_a_share()).
class Forks {
 public:
  Forks(Context& context, KvCacheManager& kv, RequestTable& table, Requests& requests)
      : context_(context), kv_(kv), table_(table), requests_(requests) {}

  // Checks whether the parent can have this child. `num_waiting` is the number of waiting requests.
  [[nodiscard]] Result<void> check(const Request& parent, const ForkRequest& child, std::size_t num_waiting) const;
  // Forks the grammar if the parent's output has one. Called before the child is created.
  Result<void> fork_grammar(const Request& parent, const ForkRequest& child);
  // Creates the child with its shared blocks. The child is in no queue yet.
  Request& create(Request& parent, const ForkRequest& given);
  void leave_family(Request& request);        // called when the request has ended
  void stop_sharing(const Request& request);  // called when the request no longer waits
  // Releases the shared blocks of the newest waiting fork other than `beneficiary`. Returns false if no such fork exists.
  bool release_a_share(EventCause cause, const Request* beneficiary = nullptr);
  // Releases the shares that contain one of these blocks, whose load failed. The blocks belong to the first cache group.
  void release_shares_of(std::span<const BlockId> sorted);
  [[nodiscard]] bool is_sharing(const Request& request) const;
  void release_share_of(Request& request, EventCause cause);  // requires is_sharing()
  // Plans copies of the shared blocks to which the newly scheduled tokens are written.
  void plan_copies(const Request& request, ScheduledKind kind, PlanArena& arena) const;

  [[nodiscard]] std::span<Request* const> sharing() const { return sharing_; }
  [[nodiscard]] const std::unordered_map<std::uint64_t, std::uint32_t>& families() const { return families_; }
  [[nodiscard]] std::uint64_t last_family() const { return last_family_; }

  // Checkpoint fields (schedule/checkpoint/state_archive.h). A new member does not compile until the structured binding names it.
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
  std::vector<Request*> sharing_;                              // waiting forks that hold shared blocks, in the order of creation
  std::unordered_map<std::uint64_t, std::uint32_t> families_;  // number of open requests per family
  // Family ids begin at 1. A request with family 0 has no relatives.
  std::uint64_t last_family_ = 0;
};

}  // namespace quire
