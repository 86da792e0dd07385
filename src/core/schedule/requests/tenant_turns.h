#pragma once
// Shares of a step between tenants (SchedulerOptions::tenant_turns). While two or more tenants have requests, the tenant with the fewest
// rows is admitted next, and the tenant with the most rows gives one up for it. No tenant's prompts take tokens that another tenant could
// use. Shares are counted at the beginning of each step and of its admissions, so nothing is kept between two steps. With one tenant, or
// without the option, no decision changes.
//
// Progress: order the running requests as the policy preempts them, last one first. The first request in this order keeps its row until it
// ends:
//   - the policy preempts it only when no other request runs;
//   - a tenant gives up rows for others only while it has two or more, and never the row of its first request.
// A request ahead of it in the batch receives tokens, or leaves the batch. The request at the front of the batch receives at least one
// token in each step, whatever its tenant's share. It therefore ends, and another request becomes the first. (PRIORITY: if arrival times
// differ.)
#include <cstdint>
#include <string_view>
#include <vector>

#include "core/schedule/requests/context.h"
#include "core/schedule/requests/queues.h"
#include "core/schedule/requests/request.h"

namespace quire {

// Called by both loops and by preemption, on the core's thread.
class TenantScheduler {
 public:
  TenantScheduler(const Context& context, const Queues& queues) : context_(context), queues_(queues) {}

  // Called before the running loop: lists running and waiting requests, and computes each tenant's tokens in this step.
  void begin_step();
  void end_step() { num_shares_ = 0; }
  // Two tenants or more run or wait.
  [[nodiscard]] bool is_on() const { return num_shares_ > 1; }
  [[nodiscard]] std::size_t num_tenants() const { return num_shares_; }
  // Caps the tokens that a request wants at what its tenant has left in this step. Decodes and prefills that cannot be split are never
  // capped. The request at the front of the batch keeps one token at least.
  [[nodiscard]] std::int32_t cap_at_share(const Request& request, std::int32_t wanted) const;
  // Reports that the request has received `num_tokens` of this step; a negative number returns tokens.
  void note_tokens(const Request& request, std::int32_t num_tokens);

  // Called after the running loop: lists waiting requests, in the order of the queues.
  void begin_admissions();
  // Returns the next request of the tenant that has the fewest rows. Null: no request is left.
  [[nodiscard]] Request* next();
  // next() continues after this request, which is admitted, or waits for something other than its turn.
  void pass(const Request& request, bool was_admitted);
  // Admits no further request of its tenant in this step.
  void end_turn(const Request& request);

  // Returns whether the tenant with the most rows has to give one up for the request: it has at least two rows more than its tenant.
  [[nodiscard]] bool may_take_row(const Request& beneficiary) const {
    const Share *most = largest_share(), *own = find(beneficiary);
    return is_on() && own != nullptr && most->num_rows >= own->num_rows + 2;
  }
  // Returns the request to preempt for `beneficiary`: the last that `can_preempt` of the tenant with the most rows. Returns end() if there
  // is no such request.
  template <class CanPreempt>
  [[nodiscard]] std::vector<Request*>::iterator find_victim(std::vector<Request*>& running, const Request& beneficiary,
                                                            CanPreempt can_preempt) const {
    return may_take_row(beneficiary) ? last_of(running, *largest_share(), can_preempt) : running.end();
  }
  // Returns the request to preempt when running requests need blocks: the last of the tenant with the most rows. Returns end() if several
  // tenants have as many rows, or if that tenant has one.
  [[nodiscard]] std::vector<Request*>::iterator find_victim_of_largest_share(std::vector<Request*>& running) const;
  void note_preempted(const Request& victim);

  // Lists the members for checkpoints (schedule/checkpoint/state_archive.h). All of them are valid within one step.
  template <class Archive, class Self>
  static void fields(Archive&, Self&) {}

 private:
  struct Share {
    std::string_view tenant;
    std::uint32_t num_rows = 0;
    std::int64_t wanted = 0;          // tokens that its requests could run
    std::int64_t tokens_left = 0;     // tokens of its share that are left in this step
    std::vector<Request*> waiting{};  // in the order of the queues
    std::size_t next = 0;             // index in `waiting`
  };
  Share& share_of(const Request& request);
  [[nodiscard]] const Share* find(const Request& request) const;
  [[nodiscard]] const Share* largest_share() const;
  // Returns whether the policy preempts `b` before `a`, whichever was admitted later (Policy::find_victim).
  [[nodiscard]] bool outranks(const Request& a, const Request& b) const;
  // Returns the request of the tenant that the policy preempts first. The tenant's first request keeps its row.
  template <class CanPreempt>
  [[nodiscard]] std::vector<Request*>::iterator last_of(std::vector<Request*>& running, const Share& share, CanPreempt can_preempt) const {
    auto first = running.end(), last = running.end();
    for (auto it = running.begin(); it != running.end(); ++it)
      if ((*it)->tags.tenant == share.tenant && (first == running.end() || outranks(**it, **first))) first = it;
    for (auto it = running.begin(); it != running.end(); ++it)
      if ((*it)->tags.tenant == share.tenant && it != first && can_preempt(**it) && (last == running.end() || !outranks(**it, **last)))
        last = it;
    return last;
  }
  void distribute_tokens();

  const Context& context_;
  const Queues& queues_;
  std::vector<Share> shares_;  // the first num_shares_ are this step's; the others keep their memory
  std::size_t num_shares_ = 0;
  std::vector<Share*> by_wanted_;
  std::vector<Request*> waiting_;
};

}  // namespace quire
