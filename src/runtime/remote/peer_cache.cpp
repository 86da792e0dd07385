// Asks other servers for blocks by name, and loads them. The thread of the store, questions and loads on their way to a peer and back to
// who asked. It waits for nothing but poll() and the look-up of a host's name, and believes nothing: an answer is that of the key and this
// connection, a block that of the name that the request's own tokens give it. What a peer does wrong is in peer_cache_trust.cpp. Jobs and
// questions are told of without the mutex.
#include "runtime/remote/peer_cache.h"

#include <poll.h>

#include <algorithm>
#include <utility>

#include "base/check.h"
#include "runtime/remote/peer_cache_state.h"

namespace quire {
namespace {

constexpr std::size_t kMostFinds = 1024;  // that wait for a peer
constexpr int kFramesOfPeer = 8;          // before the next one has its turn
constexpr int kCacheTick_ms = 10;         // while anything is under way
constexpr int kIdleTick_ms = 1000;        // while a connection is open

std::chrono::steady_clock::duration cache_seconds(double seconds) {
  return std::chrono::duration_cast<std::chrono::steady_clock::duration>(std::chrono::duration<double>(seconds));
}

}  // namespace

PeerCache::PeerCache(PeerCacheOptions options, std::unique_ptr<PeerServer> server)
    : options_(std::move(options)),
      block_bytes_(std::ranges::max(options_.group_bytes)),
      server_(std::move(server)),
      seal_(options_.secret) {
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
  QUIRE_CHECK(job.bytes > 0 && job.bytes <= block_bytes_, "no such block");
  if (job.verb == TierJob::Verb::store) return job.over(TierOutcome::given_up);
  count_.load_begins();
  {
    const std::lock_guard lock(mutex_);
    submitted_.push_back({.job = std::move(job), .until = {}});
  }
  wake_.ring();
}

void PeerCache::ask(std::vector<OffloadKey> names, std::function<bool()> is_wanted, std::function<void(const Answer&)> over) {
  QUIRE_CHECK(!names.empty(), "a question about nothing");
  auto question = std::make_shared<Question>();
  question->names = std::move(names);
  question->is_wanted = std::move(is_wanted);
  question->over = std::move(over);
  count_.asked(question->names.size());
  {
    const std::lock_guard lock(mutex_);
    asked_.push_back(std::move(question));
  }
  wake_.ring();
}

// At no less than its share of the processors: requests wait for it, and it has little to do.
void PeerCache::run() {
  for (;;) {
    {
      const std::lock_guard lock(mutex_);
      if (stops_) break;
    }
    wait();
    take_asked(std::chrono::steady_clock::now());
    for (const std::unique_ptr<Peer>& peer : peers_) {
      say(*peer, std::chrono::steady_clock::now());
      go_on(*peer);
      look_at_clock(*peer, std::chrono::steady_clock::now());
      // What has been answered may let it say more.
      say(*peer, std::chrono::steady_clock::now());
    }
    const TimePoint now = std::chrono::steady_clock::now();
    const std::vector<std::shared_ptr<Question>> open = open_;
    for (const std::shared_ptr<Question>& question : open)
      if (now >= question->until) finish(question);
  }
  for (const std::unique_ptr<Peer>& peer : peers_) drop(*peer, TierOutcome::given_up, TierOutcome::given_up);
  std::vector<Load> left;
  {
    const std::lock_guard lock(mutex_);
    left.swap(submitted_);
  }
  for (const Load& load : left) end(load, TierOutcome::given_up);
}

void PeerCache::wait() {
  std::vector<pollfd> polled;
  polled.reserve(1 + 2 * peers_.size());
  polled.push_back({.fd = wake_.descriptor(), .events = POLLIN, .revents = 0});
  bool is_busy = !open_.empty(), is_connected = false;
  for (const std::unique_ptr<Peer>& peer : peers_) {
    is_busy = is_busy || !peer->finds.empty() || !peer->jobs.empty();
    for (const PeerLine* const line : {&peer->asks, &peer->loads}) {
      is_connected = is_connected || line->state() != PeerLine::State::closed;
      polled.push_back({.fd = line->descriptor(), .events = line->events(), .revents = 0});
    }
  }
  {
    const std::lock_guard lock(mutex_);
    if (stops_ || !asked_.empty() || !submitted_.empty()) return;
  }
  poll(polled.data(), polled.size(), is_busy ? kCacheTick_ms : is_connected ? kIdleTick_ms : -1);
  wake_.taken();
}

void PeerCache::take_asked(TimePoint now) {
  std::vector<std::shared_ptr<Question>> asked;
  std::vector<Load> submitted;
  {
    const std::lock_guard lock(mutex_);
    asked.swap(asked_);
    submitted.swap(submitted_);
  }
  for (const std::shared_ptr<Question>& question : asked)
    if (question->is_wanted()) begin(question, now);
  for (Load& load : submitted) route(std::move(load), now);
}

// All are asked at once: nobody knows who has it.
void PeerCache::begin(const std::shared_ptr<Question>& question, TimePoint now) {
  question->until = now + cache_seconds(options_.answer_s);
  question->has.resize(peers_.size());
  for (const std::unique_ptr<Peer>& peer : peers_) {
    const std::size_t num_frames = (question->names.size() + kMostPeerNames - 1) / kMostPeerNames;
    if (!peer->may_be_asked(now) || peer->finds.size() + num_frames > kMostFinds) continue;
    const bool is_waited_for = peer->pause_s == 0.0 || question->is_trial;
    for (std::size_t first = 0; first < question->names.size(); first += kMostPeerNames) {
      peer->finds.push_back({.question = question,
                             .first = first,
                             .count = std::min(kMostPeerNames, question->names.size() - first),
                             .number = 0,
                             .is_waited_for = is_waited_for});
      question->num_left += is_waited_for ? 1 : 0;
    }
    // One trial at a time.
    if (peer->pause_s > 0.0) peer->due = now + cache_seconds(options_.patience_s + peer->pause_s);
  }
  question->was_asked = question->num_left > 0;
  open_.push_back(question);
  if (question->num_left == 0) finish(question);
}

void PeerCache::route(Load load, TimePoint now) {
  if (is_forbidden(load.job.name)) return end(load, TierOutcome::absent);
  Peer* const peer = holder_of(load.job.name);
  if (peer == nullptr) return end(load, TierOutcome::absent);
  if (peer->pause_s > 0.0) return end(load, TierOutcome::failed);
  peer->queued_bytes += load.job.bytes;
  load.until = now + cache_seconds(options_.patience_s + static_cast<double>(peer->queued_bytes) / options_.least_bytes_per_s);
  peer->jobs.push_back(std::move(load));
}

// What waits for a peer, as far as its lines let it be said.
void PeerCache::say(Peer& peer, TimePoint now) {
  const auto is_open = [&](PeerLine& line, bool has_more, TimePoint& until) {
    if (!has_more) return false;
    if (line.state() == PeerLine::State::closed) {
      line.open();
      until = now + cache_seconds(options_.patience_s);
    }
    return line.state() == PeerLine::State::open;
  };
  if (is_open(peer.asks, peer.num_sent < peer.finds.size(), peer.asks_until)) {
    if (peer.num_sent == 0) peer.asks_until = now + cache_seconds(options_.patience_s);
    for (; peer.num_sent < peer.finds.size(); ++peer.num_sent) {
      Peer::Find& find = peer.finds[peer.num_sent];
      find.number = peer.next_find++;
      const auto names = std::span(find.question->names).subspan(find.first, find.count);
      seal_.add_names(peer.asks.out(), peer.asks.session(), PeerKind::find, find.number, names);
    }
  }
  if (!is_open(peer.loads, peer.num_taken == 0 && !peer.jobs.empty(), peer.loads_until)) return;
  std::vector<OffloadKey> names;
  names.reserve(kMostPeerNames);
  for (; peer.num_taken < std::min(peer.jobs.size(), kMostPeerNames); ++peer.num_taken) names.push_back(peer.jobs[peer.num_taken].job.name);
  peer.loads_until = now + cache_seconds(options_.patience_s);
  peer.next_block = peer.next_take;
  peer.next_take += static_cast<std::uint32_t>(names.size());
  seal_.add_names(peer.loads.out(), peer.loads.session(), PeerKind::take, peer.next_block, names);
}

void PeerCache::go_on(Peer& peer) {
  for (PeerLine* const line : {&peer.asks, &peer.loads}) {
    const bool is_asking = line == &peer.asks;
    for (int num_frames = 0; num_frames < kFramesOfPeer; ++num_frames) {
      const bool was_open = line->state() == PeerLine::State::open;
      const std::optional<PeerFrame> frame = line->go_on(seal_);
      if (!was_open && line->state() == PeerLine::State::open) welcome(peer, line->engine_id());
      if (peer.is_self || !frame) break;
      if (!(is_asking ? hear_found(peer, *frame) : hear_block(peer, *frame))) return;
    }
    const bool is_awaited = is_asking ? !peer.finds.empty() : !peer.jobs.empty();
    if (!line->is_lost()) continue;
    // Who was silent for long is let go, by either side.
    if (is_awaited) return pause(peer, line->why_lost());
    line->close();
  }
}

bool PeerCache::hear_found(Peer& peer, const PeerFrame& frame) {
  const std::optional<PeerFound> found = seal_.read_found(frame, peer.asks.session());
  if (!found || peer.num_sent == 0 || found->number != peer.finds.front().number || found->has.size() != peer.finds.front().count) {
    pause(peer, "it answers what it was not asked");
    return false;
  }
  const Peer::Find find = std::move(peer.finds.front());
  peer.finds.pop_front();
  --peer.num_sent;
  peer.asks_used = std::chrono::steady_clock::now();
  peer.asks_until = peer.asks_used + cache_seconds(options_.patience_s);
  peer.pause_s = 0.0;
  Question& question = *find.question;
  std::vector<bool>& has = question.has[peer.index];
  has.resize(question.names.size());
  for (std::size_t i = 0; i < find.count; ++i) has[find.first + i] = found->has[i];
  question.was_answered = true;
  if (find.is_waited_for) answered(find.question);
  return true;
}

// Each is the next one that was asked for.
bool PeerCache::hear_block(Peer& peer, const PeerFrame& frame) {
  if (peer.num_taken == 0) {
    pause(peer, "it says more than it was asked for");
    return false;
  }
  const TierJob& job = peer.jobs.front().job;
  const std::optional<std::uint32_t> gone = seal_.read_gone(frame, peer.loads.session());
  const auto bytes = gone ? std::nullopt : seal_.read_block(frame, peer.loads.session(), job.name, peer.next_block, job.bytes);
  if (!bytes && gone != peer.next_block) {
    pause(peer, "a block of it is not what this request's tokens name");
    return false;
  }
  if (bytes) count_.read(job.bytes);
  const TierOutcome outcome = !bytes ? TierOutcome::absent : job.copy(*bytes) ? TierOutcome::done : TierOutcome::given_up;
  const Load load = std::move(peer.jobs.front());
  peer.jobs.pop_front();
  --peer.num_taken;
  ++peer.next_block;
  peer.queued_bytes -= load.job.bytes;
  peer.loads_used = std::chrono::steady_clock::now();
  peer.loads_until = peer.loads_used + cache_seconds(options_.patience_s);
  peer.pause_s = 0.0;
  end(load, outcome);
  return true;
}

void PeerCache::answered(const std::shared_ptr<Question>& question) {
  QUIRE_CHECK(question->num_left > 0, "frames are answered once");
  if (--question->num_left == 0) finish(question);
}

// A block is taken from who has most of those that were asked for: requests want them together.
void PeerCache::finish(const std::shared_ptr<Question>& question) {
  if (std::exchange(question->is_over, true)) return;
  std::erase(open_, question);
  std::vector<std::size_t> order(peers_.size());
  for (std::size_t i = 0; i < order.size(); ++i) order[i] = i;
  const auto num_held = [&](std::size_t peer) { return std::ranges::count(question->has[peer], true); };
  std::ranges::sort(order, [&](std::size_t a, std::size_t b) { return std::pair(-num_held(a), a) < std::pair(-num_held(b), b); });
  Answer answer{.has = std::vector<bool>(question->names.size()), .is_whole = question->was_answered || !question->was_asked};
  std::uint64_t num_found = 0;
  for (std::size_t i = 0; i < question->names.size(); ++i) {
    const auto has = [&](std::size_t peer) { return !question->has[peer].empty() && question->has[peer][i]; };
    const auto holder = std::ranges::find_if(order, has);
    if (holder == order.end() || is_forbidden(question->names[i])) continue;
    remember(question->names[i], *holder);
    answer.has[i] = true;
    ++num_found;
  }
  count_.found(num_found);
  if (question->is_trial) count_.trial_ended(question->was_answered);
  if (question->over) question->over(answer);
}

void PeerCache::remember(const OffloadKey& name, std::size_t peer) {
  if (holders_.size() >= options_.num_places && !holders_.contains(name)) {
    older_holders_ = std::move(holders_);
    holders_.clear();
  }
  holders_.insert_or_assign(name, peer);
}

PeerCache::Peer* PeerCache::holder_of(const OffloadKey& name) {
  for (const Holders* const holders : {&holders_, &older_holders_})
    if (const auto found = holders->find(name); found != holders->end()) return peers_[found->second].get();
  return nullptr;
}

}  // namespace quire
