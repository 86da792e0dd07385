// The thread of `PeerCache`, and the path of lookups and loads to a peer and back. The thread blocks only in poll() and in host name
// resolution. Received bytes are not trusted: an answer's MAC must match the secret and this connection, and a block must match the offload
// key that this server computed from the request's tokens. peer_cache_trust.cpp handles peers that misbehave. The callbacks of jobs and
// lookups run without the mutex.
#include "runtime/remote/peer_cache.h"

#include <poll.h>

#include <algorithm>
#include <utility>

#include "base/check.h"
#include "base/seconds.h"
#include "runtime/remote/peer_cache_state.h"

namespace quire {
namespace {

constexpr std::size_t kMaxFinds = 1024;  // lookup frames queued per peer
constexpr int kFramesPerPeer = 8;        // frames of one peer that are handled before the next peer's frames
constexpr int kCacheTick_ms = 10;        // poll() timeout while a lookup or load is in flight
constexpr int kIdleTick_ms = 1000;       // poll() timeout while a connection is open

}  // namespace

PeerCache::PeerCache(PeerCacheOptions options, std::unique_ptr<PeerServer> server)
    : options_(std::move(options)),
      block_bytes_(std::ranges::max(options_.group_bytes)),
      server_(std::move(server)),
      codec_(options_.secret) {
  peers_.reserve(options_.peers.size());
  for (std::size_t i = 0; i < options_.peers.size(); ++i) peers_.push_back(std::make_unique<Peer>(options_, i, block_bytes_));
  thread_ = std::thread([this] { run(); });
}

PeerCache::~PeerCache() {
  {
    const std::lock_guard lock(mutex_);
    stops_ = true;
  }
  wake_.ring();
  thread_.join();
}

void PeerCache::submit(TierJob job) {
  QUIRE_CHECK(job.bytes > 0 && job.bytes <= block_bytes_, "a job has between 1 byte and block_bytes() bytes");
  if (job.verb == TierJob::Verb::store) return job.over(TierOutcome::cancelled);
  count_.load_started();
  {
    const std::lock_guard lock(mutex_);
    submitted_.push_back({.job = std::move(job), .until = {}});
  }
  wake_.ring();
}

void PeerCache::ask(std::vector<OffloadKey> names, std::function<bool()> is_wanted, std::function<void(const Answer&)> over) {
  QUIRE_CHECK(!names.empty(), "a question has at least one offload key");
  auto question = std::make_shared<Lookup>();
  question->names = std::move(names);
  question->is_wanted = std::move(is_wanted);
  question->over = std::move(over);
  count_.asked(question->names.size());
  {
    const std::lock_guard lock(mutex_);
    queried_.push_back(std::move(question));
  }
  wake_.ring();
}

// This thread runs with normal priority: requests wait for it, and it uses little CPU time.
void PeerCache::run() {
  for (;;) {
    {
      const std::lock_guard lock(mutex_);
      if (stops_) break;
    }
    wait();
    take_lookups(std::chrono::steady_clock::now());
    for (const std::unique_ptr<Peer>& peer : peers_) {
      send_requests(*peer, std::chrono::steady_clock::now());
      advance(*peer);
      check_timeouts(*peer, std::chrono::steady_clock::now());
      // After an answer, more requests may be in flight.
      send_requests(*peer, std::chrono::steady_clock::now());
    }
    const TimePoint now = std::chrono::steady_clock::now();
    const std::vector<std::shared_ptr<Lookup>> open = open_;
    for (const std::shared_ptr<Lookup>& question : open)
      if (now >= question->until) finish(question);
  }
  for (const std::unique_ptr<Peer>& peer : peers_) drop(*peer, TierOutcome::cancelled, TierOutcome::cancelled);
  std::vector<Load> left;
  {
    const std::lock_guard lock(mutex_);
    left.swap(submitted_);
  }
  for (const Load& load : left) end(load, TierOutcome::cancelled);
}

void PeerCache::wait() {
  std::vector<pollfd> polled;
  polled.reserve(1 + 2 * peers_.size());
  polled.push_back({.fd = wake_.descriptor(), .events = POLLIN, .revents = 0});
  bool is_busy = !open_.empty(), is_connected = false;
  for (const std::unique_ptr<Peer>& peer : peers_) {
    is_busy = is_busy || !peer->finds.empty() || !peer->jobs.empty();
    for (const PeerClientConnection* const connection : {&peer->asks, &peer->loads}) {
      is_connected = is_connected || connection->state() != PeerClientConnection::State::closed;
      polled.push_back({.fd = connection->descriptor(), .events = connection->events(), .revents = 0});
    }
  }
  {
    const std::lock_guard lock(mutex_);
    if (stops_ || !queried_.empty() || !submitted_.empty()) return;
  }
  poll(polled.data(), polled.size(), is_busy ? kCacheTick_ms : is_connected ? kIdleTick_ms : -1);
  wake_.taken();
}

void PeerCache::take_lookups(TimePoint now) {
  std::vector<std::shared_ptr<Lookup>> asked;
  std::vector<Load> submitted;
  {
    const std::lock_guard lock(mutex_);
    asked.swap(queried_);
    submitted.swap(submitted_);
  }
  for (const std::shared_ptr<Lookup>& question : asked)
    if (question->is_wanted()) begin(question, now);
  for (Load& load : submitted) route(std::move(load), now);
}

// Sends the lookup to all available peers at the same time, because any peer may hold the blocks.
void PeerCache::begin(const std::shared_ptr<Lookup>& question, TimePoint now) {
  question->until = now + steady_seconds(options_.lookup_timeout_s);
  question->has.resize(peers_.size());
  for (const std::unique_ptr<Peer>& peer : peers_) {
    const std::size_t num_frames = (question->names.size() + kMaxPeerKeys - 1) / kMaxPeerKeys;
    if (!peer->is_available(now) || peer->finds.size() + num_frames > kMaxFinds) continue;
    const bool is_waited_for = peer->backoff_s == 0.0 || question->is_probe;
    for (std::size_t first = 0; first < question->names.size(); first += kMaxPeerKeys) {
      peer->finds.push_back({.question = question,
                             .first = first,
                             .count = std::min(kMaxPeerKeys, question->names.size() - first),
                             .number = 0,
                             .is_waited_for = is_waited_for});
      question->num_left += is_waited_for ? 1 : 0;
    }
    // The next trial of a paused peer begins after this trial's time limit and another pause.
    if (peer->backoff_s > 0.0) peer->due = now + steady_seconds(options_.timeout_s + peer->backoff_s);
  }
  question->has_awaited_answer = question->num_left > 0;
  open_.push_back(question);
  if (question->num_left == 0) finish(question);
}

void PeerCache::route(Load load, TimePoint now) {
  if (is_untrusted(load.job.name)) return end(load, TierOutcome::absent);
  Peer* const peer = holder_of(load.job.name);
  if (peer == nullptr) return end(load, TierOutcome::absent);
  if (peer->backoff_s > 0.0) return end(load, TierOutcome::failed);
  peer->queued_bytes += load.job.bytes;
  load.until = now + steady_seconds(options_.timeout_s + static_cast<double>(peer->queued_bytes) / options_.min_bytes_per_s);
  peer->jobs.push_back(std::move(load));
}

// Sends as many queued lookups and loads to the peer as its connections allow.
void PeerCache::send_requests(Peer& peer, TimePoint now) {
  const auto is_open = [&](PeerClientConnection& connection, bool has_more, TimePoint& until) {
    if (!has_more) return false;
    if (connection.state() == PeerClientConnection::State::closed) {
      connection.open();
      until = now + steady_seconds(options_.timeout_s);
    }
    return connection.state() == PeerClientConnection::State::open;
  };
  if (is_open(peer.asks, peer.num_sent < peer.finds.size(), peer.asks_deadline)) {
    if (peer.num_sent == 0) peer.asks_deadline = now + steady_seconds(options_.timeout_s);
    for (; peer.num_sent < peer.finds.size(); ++peer.num_sent) {
      Peer::FindRequest& find = peer.finds[peer.num_sent];
      find.number = peer.next_find++;
      const auto names = std::span(find.question->names).subspan(find.first, find.count);
      codec_.add_keys(peer.asks.out(), peer.asks.session(), PeerKind::find, find.number, names);
    }
  }
  if (!is_open(peer.loads, peer.num_taken == 0 && !peer.jobs.empty(), peer.loads_deadline)) return;
  std::vector<OffloadKey> names;
  names.reserve(kMaxPeerKeys);
  for (; peer.num_taken < std::min(peer.jobs.size(), kMaxPeerKeys); ++peer.num_taken) names.push_back(peer.jobs[peer.num_taken].job.name);
  peer.loads_deadline = now + steady_seconds(options_.timeout_s);
  peer.next_block = peer.next_take;
  peer.next_take += static_cast<std::uint32_t>(names.size());
  codec_.add_keys(peer.loads.out(), peer.loads.session(), PeerKind::take, peer.next_block, names);
}

void PeerCache::advance(Peer& peer) {
  for (PeerClientConnection* const connection : {&peer.asks, &peer.loads}) {
    const bool is_asking = connection == &peer.asks;
    for (int num_frames = 0; num_frames < kFramesPerPeer; ++num_frames) {
      const bool was_open = connection->state() == PeerClientConnection::State::open;
      const std::optional<PeerFrame> frame = connection->advance(codec_);
      if (!was_open && connection->state() == PeerClientConnection::State::open) handle_welcome(peer, connection->engine_id());
      if (peer.is_self || !frame) break;
      if (!(is_asking ? handle_found(peer, *frame) : handle_block(peer, *frame))) return;
    }
    const bool is_awaited = is_asking ? !peer.finds.empty() : !peer.jobs.empty();
    if (!connection->is_lost()) continue;
    // Either side closes a connection after a long idle time. This is a failure only if an answer is awaited.
    if (is_awaited) return pause(peer, connection->lost_reason());
    connection->close();
  }
}

bool PeerCache::handle_found(Peer& peer, const PeerFrame& frame) {
  const std::optional<PeerFound> found = codec_.read_found(frame, peer.asks.session());
  if (!found || peer.num_sent == 0 || found->number != peer.finds.front().number || found->has.size() != peer.finds.front().count) {
    pause(peer, "its answer does not match the question that was sent");
    return false;
  }
  const Peer::FindRequest find = std::move(peer.finds.front());
  peer.finds.pop_front();
  --peer.num_sent;
  peer.asks_last_used = std::chrono::steady_clock::now();
  peer.asks_deadline = peer.asks_last_used + steady_seconds(options_.timeout_s);
  peer.backoff_s = 0.0;
  if (!peer.has_sent_corrupted) peer.last_backoff_s = 0.0;
  Lookup& question = *find.question;
  std::vector<bool>& has = question.has[peer.index];
  has.resize(question.names.size());
  for (std::size_t i = 0; i < find.count; ++i) has[find.first + i] = found->has[i];
  question.was_answered = true;
  if (find.is_waited_for) count_answer(find.question);
  return true;
}

// Handles a received block. Blocks arrive in the order of their requests.
bool PeerCache::handle_block(Peer& peer, const PeerFrame& frame) {
  if (peer.num_taken == 0) {
    pause(peer, "it sent more than was requested");
    return false;
  }
  const TierJob& job = peer.jobs.front().job;
  const std::optional<std::uint32_t> gone = codec_.read_gone(frame, peer.loads.session());
  const auto bytes = gone ? std::nullopt : codec_.read_block(frame, peer.loads.session(), job.name, peer.next_block, job.bytes);
  if (!bytes && gone != peer.next_block) {
    pause(peer, "a block from it does not match the requested offload key", TierOutcome::refused);
    return false;
  }
  if (bytes) count_.read(job.bytes);
  const TierOutcome outcome = !bytes ? TierOutcome::absent : job.copy(*bytes) ? TierOutcome::done : TierOutcome::cancelled;
  const Load load = std::move(peer.jobs.front());
  peer.jobs.pop_front();
  --peer.num_taken;
  ++peer.next_block;
  peer.queued_bytes -= load.job.bytes;
  peer.loads_last_used = std::chrono::steady_clock::now();
  peer.loads_deadline = peer.loads_last_used + steady_seconds(options_.timeout_s);
  peer.backoff_s = 0.0;
  if (bytes) {
    peer.last_backoff_s = 0.0;
    peer.has_sent_corrupted = false;
  }
  end(load, outcome);
  return true;
}

void PeerCache::count_answer(const std::shared_ptr<Lookup>& question) {
  QUIRE_CHECK(question->num_left > 0, "each frame of a question is answered once");
  if (--question->num_left == 0) finish(question);
}

// Ends the lookup. If several peers hold a block, the block is loaded from the peer that holds most blocks of the lookup, because a request
// needs its blocks together.
void PeerCache::finish(const std::shared_ptr<Lookup>& question) {
  if (std::exchange(question->is_over, true)) return;
  std::erase(open_, question);
  std::vector<std::size_t> order(peers_.size());
  for (std::size_t i = 0; i < order.size(); ++i) order[i] = i;
  const auto num_held = [&](std::size_t peer) { return std::ranges::count(question->has[peer], true); };
  std::ranges::sort(order, [&](std::size_t a, std::size_t b) { return std::pair(-num_held(a), a) < std::pair(-num_held(b), b); });
  Answer answer{.has = std::vector<bool>(question->names.size()), .is_whole = question->was_answered || !question->has_awaited_answer};
  std::uint64_t num_found = 0;
  for (std::size_t i = 0; i < question->names.size(); ++i) {
    const auto has = [&](std::size_t peer) { return !question->has[peer].empty() && question->has[peer][i]; };
    const auto holder = std::ranges::find_if(order, has);
    if (holder == order.end() || is_untrusted(question->names[i])) continue;
    record_holder(question->names[i], *holder);
    answer.has[i] = true;
    ++num_found;
  }
  count_.found(num_found);
  if (question->is_probe) count_.probe_finished(question->was_answered);
  if (question->over) question->over(answer);
}

void PeerCache::record_holder(const OffloadKey& name, std::size_t peer) {
  if (holders_.size() >= options_.num_places && !holders_.contains(name)) {
    previous_holders_ = std::move(holders_);
    holders_.clear();
  }
  holders_.insert_or_assign(name, peer);
}

PeerCache::Peer* PeerCache::holder_of(const OffloadKey& name) {
  for (const Holders* const holders : {&holders_, &previous_holders_})
    if (const auto found = holders->find(name); found != holders->end()) return peers_[found->second].get();
  return nullptr;
}

}  // namespace quire
