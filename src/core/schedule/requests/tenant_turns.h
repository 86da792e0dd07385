#pragma once
// Divides a step between tenants (SchedulerOptions::tenant_turns). While at least two tenants have requests, the tenant with the fewest
// rows is admitted next, and the tenant with the most rows gives up a row for it. A tenant's prompts do not take tokens that another tenant
// could use. Shares are computed at the beginning of each step and of its admissions, so no state is kept between steps. With one tenant,
// or without the option, no decision changes.
//
// The background requests of a tenant (RequestTags::is_background) are a share of their own. All shares of background requests come after
// all others: they are admitted after them, divide the tokens that the others leave, and give up any row and any block for them.
//
// Progress: order the running requests as the policy preempts them, last one first. The first request in this order keeps its row until it
// ends:
//   - the policy preempts it only when no other request runs;
//   - a tenant gives up rows for others only while it has two or more, and never the row of its first request.
// Each request before it in the batch receives tokens or leaves the batch. The request at the front of the batch receives at least one
// token in each step, whatever its tenant's share. The first request therefore ends, and another becomes the first. (Under PRIORITY, this
// holds if arrival times differ.) Background requests make progress only while the others leave rows and blocks.
#include <cstdint>
#include <string_view>
#include <vector>

#include "core/schedule/requests/context.h"
#include "core/schedule/requests/queues.h"
#include "core/schedule/requests/request.h"

namespace quire {

// Called by both loops, by PromptShares and by preemption, on the core's thread.
class TenantScheduler {
 public:
  TenantScheduler(const Context& context, const Queues& queues) : context_(context), queues_(queues) {}

  // Called before the running loop. Counts the running and waiting requests, and computes each tenant's tokens in this step.
  void begin_step();
  void end_step() { num_shares_ = 0; }
  // Returns whether there are at least two shares, that is, two tenants or background requests next to others.
  [[nodiscard]] bool is_on() const { return num_shares_ > 1; }
  [[nodiscard]] std::size_t num_tenants() const { return num_shares_; }
  // Limits the tokens that a request wants to what its tenant has left in this step. Decodes and prefills that cannot be split are not
  // limited. The request at the front of the batch gets at least one token.
  [[nodiscard]] std::int32_t cap_at_share(const Request& request, std::int32_t wanted) const;
  // Records that the request has received `num_tokens` of this step; a negative number returns tokens.
  void note_tokens(const Request& request, std::int32_t num_tokens);

  // Called after the running loop. Lists the waiting requests in the order of the queues.
  void begin_admissions();
  // Returns the next waiting request of the tenant with the fewest rows, or null if no request is left.
  [[nodiscard]] Request* next();
  // Moves next() past this request, which was admitted or waits for something other than its turn.
  void pass(const Request& request, bool was_admitted);
  // Admits no more requests of this request's tenant in this step.
  void end_turn(const Request& request);

  // Returns whether the largest share must give up a row for the request: it is of background requests and the request is not, or it has
  // at least two rows more than the request's share.
  [[nodiscard]] bool may_take_row(const Request& beneficiary) const {
    const Share *most = largest_share(), *own = find(beneficiary);
    if (!is_on() || own == nullptr || most->is_background < own->is_background) return false;
    return yields(*most, *own) || most->num_rows >= own->num_rows + 2;
  }
  // Returns whether a background request must give up its row and its blocks for the request.
  [[nodiscard]] bool may_take_from_background(const Request& beneficiary) const {
    const Share* own = find(beneficiary);
    return is_on() && own != nullptr && yields(*largest_share(), *own);
  }
  // Returns the request to preempt for `beneficiary`: of the largest share, the last request for which can_preempt() returns true. Returns
  // end() if no such request exists.
  template <class CanPreempt>
  [[nodiscard]] std::vector<Request*>::iterator find_victim(std::vector<Request*>& running, const Request& beneficiary,
                                                            CanPreempt can_preempt) const {
    if (!may_take_row(beneficiary)) return running.end();
    return last_of(running, *largest_share(), may_take_from_background(beneficiary), can_preempt);
  }
  // Returns the request to preempt when running requests need blocks: the last request of the largest share. Returns end() if several
  // shares have as many rows, or if that share has one row; a background request next to others is returned in any case.
  [[nodiscard]] std::vector<Request*>::iterator find_victim_of_largest_share(std::vector<Request*>& running) const;
  void note_preempted(const Request& victim);

  // Checkpoint fields (schedule/checkpoint/state_archive.h): none, because all members are valid only within one step.
  template <class Archive, class Self>
  static void fields(Archive&, Self&) {}

 private:
  struct Share {
    std::string_view tenant;
    bool is_background = false;
    std::uint32_t num_rows = 0;
    std::int64_t wanted = 0;          // tokens that the tenant's requests could run
    std::int64_t tokens_left = 0;     // tokens of the tenant's share that are left in this step
    std::vector<Request*> waiting{};  // in the order of the queues
    std::size_t next = 0;             // index in `waiting`
  };
  Share& share_of(const Request& request);
  [[nodiscard]] const Share* find(const Request& request) const;
  // Returns the share with the most rows; one of background requests, if any of these runs.
  [[nodiscard]] const Share* largest_share() const;
  [[nodiscard]] static bool yields(const Share& share, const Share& beneficiary) {
    return share.is_background && !beneficiary.is_background && share.num_rows > 0;
  }
  [[nodiscard]] static bool is_of(const Request& request, const Share& share) {
    return request.tags.is_background == share.is_background && request.tags.tenant == share.tenant;
  }
  // Returns whether the policy preempts `b` before `a`, whichever was admitted later (Policy::find_victim()).
  [[nodiscard]] bool outranks(const Request& a, const Request& b) const;
  // Returns the share's request that the policy preempts first. Returns the share's first request only if `may_be_first`.
  template <class CanPreempt>
  [[nodiscard]] std::vector<Request*>::iterator last_of(std::vector<Request*>& running, const Share& share, bool may_be_first,
                                                        CanPreempt can_preempt) const {
    auto first = running.end(), last = running.end();
    for (auto it = running.begin(); it != running.end(); ++it)
      if (is_of(**it, share) && (first == running.end() || outranks(**it, **first))) first = it;
    for (auto it = running.begin(); it != running.end(); ++it)
      if (is_of(**it, share) && (may_be_first || it != first) && can_preempt(**it) && (last == running.end() || !outranks(**it, **last)))
        last = it;
    return last;
  }
  void distribute_tokens();

  const Context& context_;
  const Queues& queues_;
  std::vector<Share> shares_;  // the first num_shares_ belong to this step; the others keep their memory
  std::size_t num_shares_ = 0;
  std::vector<Share*> by_wanted_;
  std::vector<Request*> waiting_;
};

}  // namespace quire
