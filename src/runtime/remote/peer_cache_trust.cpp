// Handles a peer that misbehaves, and the lookups and loads that wait for the peer. Runs on the store's thread, except for the public
// functions.
#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "base/check.h"
#include "base/seconds.h"
#include "runtime/remote/peer_cache_state.h"

namespace quire {

void PeerCache::handle_welcome(Peer& peer, const std::string& engine_id) {
  peer.asks_last_used = peer.loads_last_used = std::chrono::steady_clock::now();
  if (engine_id != options_.engine_id) return;
  peer.is_self = true;
  peer.backoff_s = 0.0;
  for (const Peer::FindRequest& find : peer.finds) find.question->was_answered = true;
  drop(peer, TierOutcome::absent, TierOutcome::absent);
}

void PeerCache::check_timeouts(Peer& peer, TimePoint now) {
  if (!peer.finds.empty() && peer.asks.state() != PeerClientConnection::State::closed && now > peer.asks_deadline)
    return pause(peer, "it did not answer within the time limit");
  if (!peer.jobs.empty() && peer.loads.state() != PeerClientConnection::State::closed &&
      (now > peer.loads_deadline || now > peer.jobs.front().until))
    return pause(peer, "it did not answer within the time limit");
  const bool is_worn = peer.next_find > options_.max_numbers || peer.next_take > options_.max_numbers;
  const auto idle = steady_seconds(options_.idle_s);
  if (peer.finds.empty() && (is_worn || now > peer.asks_last_used + idle)) peer.asks.close(), peer.next_find = 0;
  if (peer.jobs.empty() && (is_worn || now > peer.loads_last_used + idle)) peer.loads.close(), peer.next_take = 0;
}

// Closes the connections to the peer. The engine computes the blocks that were awaited from the peer.
void PeerCache::pause(Peer& peer, std::string_view why, TierOutcome of_first) {
  {
    const std::lock_guard lock(mutex_);
    problem_ = fmt::format("{}: {}", peer.name, why);
  }
  peer.has_sent_corrupted = peer.has_sent_corrupted || of_first == TierOutcome::refused;
  peer.backoff_s = peer.last_backoff_s = std::clamp(2.0 * peer.last_backoff_s, options_.initial_backoff_s, options_.max_backoff_s);
  peer.due = std::chrono::steady_clock::now() + steady_seconds(peer.backoff_s);
  drop(peer, of_first, TierOutcome::failed);
}

void PeerCache::drop(Peer& peer, TierOutcome first, TierOutcome rest) {
  peer.asks.close();
  peer.loads.close();
  peer.next_find = peer.next_take = 0;
  peer.num_sent = peer.num_taken = 0;
  peer.queued_bytes = 0;
  const auto finds = std::exchange(peer.finds, {});
  const auto jobs = std::exchange(peer.jobs, {});
  for (const Peer::FindRequest& find : finds)
    if (find.is_waited_for) count_answer(find.question);
  for (std::size_t i = 0; i < jobs.size(); ++i) end(jobs[i], i == 0 ? first : rest);
}

void PeerCache::mark_untrusted(const OffloadKey& name) {
  const std::lock_guard lock(mutex_);
  untrusted_.insert(name);
}

bool PeerCache::is_untrusted(const OffloadKey& name) const {
  const std::lock_guard lock(mutex_);
  return !untrusted_.empty() && untrusted_.contains(name);
}

void PeerCache::end(const Load& load, TierOutcome outcome) {
  count_.ended(load.job, outcome);
  load.job.over(outcome);
}

// Sends a probe lookup, and loads of recently moved blocks. The loads may end as `absent`, because the blocks may have moved or were
// evicted; the lookup shows whether any peer answers.
void PeerCache::probe_loads() {
  auto question = std::make_shared<Lookup>();
  question->names.resize(1);
  question->is_wanted = [] { return true; };
  question->is_probe = true;
  count_.probe_started();
  {
    const std::lock_guard lock(mutex_);
    queried_.push_back(std::move(question));
  }
  wake_.ring();
  count_.probe_loads(*this, options_.group_bytes, {});
}

SharedStoreStats PeerCache::stats() const {
  SharedStoreStats stats = count_.stats();
  const PeerServerStats given = server_ == nullptr ? PeerServerStats{} : server_->stats();
  stats.num_stored = given.num_sent;
  stats.bytes_stored = given.bytes_sent;
  return stats;
}

std::string PeerCache::last_problem() const {
  const std::lock_guard lock(mutex_);
  return problem_;
}

}  // namespace quire
