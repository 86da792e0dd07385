// What becomes of a peer that does not do what it should, and of what waited for it. The store's thread, but for what peer_cache.h says is
// called by others.
#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "base/check.h"
#include "runtime/remote/peer_cache_state.h"

namespace quire {
namespace {

constexpr double kIdle_s = 30.0;                                 // until a connection is closed; half of what the other side waits
constexpr std::uint32_t kMostNumbers = std::uint32_t{1} << 31U;  // of a connection: none comes twice

std::chrono::steady_clock::duration trust_seconds(double seconds) {
  return std::chrono::duration_cast<std::chrono::steady_clock::duration>(std::chrono::duration<double>(seconds));
}

}  // namespace

void PeerCache::welcome(Peer& peer, const std::string& engine_id) {
  peer.asks_used = peer.loads_used = std::chrono::steady_clock::now();
  if (engine_id != options_.engine_id) return;
  peer.is_self = true;
  peer.pause_s = 0.0;
  for (const Peer::Find& find : peer.finds) find.question->was_answered = true;
  drop(peer, TierOutcome::absent, TierOutcome::absent);
}

void PeerCache::look_at_clock(Peer& peer, TimePoint now) {
  if (!peer.finds.empty() && peer.asks.state() != PeerLine::State::closed && now > peer.asks_until)
    return pause(peer, "nothing came from it in time");
  if (!peer.jobs.empty() && peer.loads.state() != PeerLine::State::closed && (now > peer.loads_until || now > peer.jobs.front().until))
    return pause(peer, "nothing came from it in time");
  const bool is_worn = peer.next_find > kMostNumbers || peer.next_take > kMostNumbers;
  if (peer.finds.empty() && (is_worn || now > peer.asks_used + trust_seconds(kIdle_s))) peer.asks.close(), peer.next_find = 0;
  if (peer.jobs.empty() && (is_worn || now > peer.loads_used + trust_seconds(kIdle_s))) peer.loads.close(), peer.next_take = 0;
}

// What waits for it is computed.
void PeerCache::pause(Peer& peer, std::string_view why) {
  {
    const std::lock_guard lock(mutex_);
    problem_ = fmt::format("{}: {}", peer.name, why);
  }
  peer.pause_s = std::clamp(2.0 * peer.pause_s, options_.first_pause_s, options_.longest_pause_s);
  peer.due = std::chrono::steady_clock::now() + trust_seconds(peer.pause_s);
  // Bytes that do not verify are the first one's.
  const bool lies = peer.num_taken > 0 && why.starts_with("a block");
  drop(peer, lies ? TierOutcome::refused : TierOutcome::failed, TierOutcome::failed);
}

void PeerCache::drop(Peer& peer, TierOutcome first, TierOutcome rest) {
  peer.asks.close();
  peer.loads.close();
  peer.next_find = peer.next_take = 0;
  peer.num_sent = peer.num_taken = 0;
  peer.queued_bytes = 0;
  const auto finds = std::exchange(peer.finds, {});
  const auto jobs = std::exchange(peer.jobs, {});
  for (const Peer::Find& find : finds)
    if (find.is_waited_for) answered(find.question);
  for (std::size_t i = 0; i < jobs.size(); ++i) end(jobs[i], i == 0 ? first : rest);
}

void PeerCache::forbid(const OffloadKey& name) {
  const std::lock_guard lock(mutex_);
  forbidden_.insert(name);
}

bool PeerCache::is_forbidden(const OffloadKey& name) const {
  const std::lock_guard lock(mutex_);
  return !forbidden_.empty() && forbidden_.contains(name);
}

void PeerCache::end(const Load& load, TierOutcome outcome) {
  count_.ended(load.job, outcome);
  load.job.over(outcome);
}

// Who holds them may be somebody else by now, or nobody: then it is told so, and only that is seen.
void PeerCache::try_loads() {
  auto question = std::make_shared<Question>();
  question->names.resize(1);
  question->is_wanted = [] { return true; };
  question->is_trial = true;
  count_.trial_begins();
  {
    const std::lock_guard lock(mutex_);
    asked_.push_back(std::move(question));
  }
  wake_.ring();
  count_.try_loads(*this, options_.group_bytes, {});
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
