// Fetches a request's blocks from the server that computed its prompt. The thread blocks only in poll() and in host name resolution.
// Received bytes are not trusted: a block is passed on only if its MAC matches the secret, this connection, and the offload key that this
// server computed from the request's tokens. A block that does not verify ends the connection, and the engine computes the missing blocks.
// Callbacks of jobs run without the mutex.
#include "runtime/remote/peer_fetcher.h"

#include <fmt/format.h>
#include <poll.h>
#include <sys/random.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <utility>

#include "base/check.h"
#include "base/seconds.h"
#include "runtime/remote/remote_address.h"

namespace quire {
namespace {

constexpr std::size_t kMaxPeerConnections = 8;
// Maximum number of fetches that only notify a producer. Further notices are dropped, and the producer's leases expire.
constexpr std::size_t kMaxPeerNotices = 1024;
constexpr int kFramesPerTurn = 8;  // frames of one producer that are handled before the next producer's frames
constexpr int kFetchTick_ms = 20;  // poll() timeout while a fetch is in flight

}  // namespace

struct PeerFetcher::PeerFetch {
  PeerKind kind = PeerKind::read;  // `read`, `done` or `renew`
  std::uint64_t ticket = 0;        // for `read`
  TimePoint due{};                 // deadline for the start of the fetch
  PeerSource source;
  std::uint32_t first = 0;
  std::vector<std::optional<TierJob>> jobs;
  std::uint32_t num_added = 0, num_over = 0;
  std::atomic<bool> is_cancelled = false;
};

struct PeerFetcher::Link {
  explicit Link(std::shared_ptr<PeerFetch> whose, std::unique_ptr<NetStream> stream, std::size_t max_payload)
      : fetch(std::move(whose)), link(std::move(stream), max_payload) {}
  std::shared_ptr<PeerFetch> fetch;
  PeerFrameStream link;
  PeerSession session;
  TimePoint until, end;  // deadlines for the next frame and for all frames
  bool is_accepted = false, has_sent_done = false, is_over = false;
  bool can_release = true;  // false if the other side is known not to be the producer
};

PeerFetcher::PeerFetcher(PeerFetcherOptions options) : options_(std::move(options)), codec_(options_.secret) {
  thread_ = std::thread([this] { run(); });
}

PeerFetcher::~PeerFetcher() {
  {
    const std::lock_guard lock(mutex_);
    stops_ = true;
  }
  wake_.ring();
  thread_.join();
}

void PeerFetcher::expect(std::uint64_t ticket, PeerSource source, std::uint32_t first, std::uint32_t num_blocks) {
  QUIRE_CHECK(num_blocks > 0, "a fetch requests at least one block");
  auto fetch = std::make_shared<PeerFetch>();
  fetch->ticket = ticket;
  fetch->source = std::move(source);
  fetch->first = first;
  fetch->jobs.resize(num_blocks);
  const std::lock_guard lock(mutex_);
  const bool is_new = open_.emplace(ticket, std::move(fetch)).second;
  QUIRE_CHECK(is_new, "a ticket is used once");
}

void PeerFetcher::add(std::uint64_t ticket, std::uint32_t index, TierJob job) {
  {
    const std::lock_guard lock(mutex_);
    const auto found = open_.find(ticket);
    QUIRE_CHECK(found != open_.end(), "expect() announces a fetch before its jobs are added");
    PeerFetch& fetch = *found->second;
    QUIRE_CHECK(index < fetch.jobs.size() && !fetch.jobs[index], "each block of a fetch is requested once");
    fetch.jobs[index] = std::move(job);
    if (++fetch.num_added < fetch.jobs.size()) return;
    fetch.due = std::chrono::steady_clock::now() + steady_seconds(options_.timeout_s);
    waiting_.push_back(found->second);
  }
  wake_.ring();
}

void PeerFetcher::cancel(std::uint64_t ticket) {
  {
    const std::lock_guard lock(mutex_);
    const auto found = open_.find(ticket);
    if (found == open_.end()) return;
    found->second->is_cancelled = true;
    if (found->second->num_added == 0) {
      put(PeerKind::done, found->second->source);
      open_.erase(found);
    }
  }
  wake_.ring();
}

void PeerFetcher::release(PeerSource source) {
  const std::lock_guard lock(mutex_);
  put(PeerKind::done, std::move(source));
}

void PeerFetcher::renew(PeerSource source) {
  const std::lock_guard lock(mutex_);
  put(PeerKind::renew, std::move(source));
}

// Queues a notice to a producer. The caller holds the mutex.
void PeerFetcher::put(PeerKind kind, PeerSource source) {
  if (num_pending_notices_ >= kMaxPeerNotices) return;
  ++num_pending_notices_;
  auto fetch = std::make_shared<PeerFetch>();
  fetch->kind = kind;
  fetch->source = std::move(source);
  waiting_.push_back(std::move(fetch));
  wake_.ring();
}

PeerFetcherStats PeerFetcher::stats() const {
  const std::lock_guard lock(mutex_);
  return stats_;
}

std::size_t PeerFetcher::num_open() const {
  const std::lock_guard lock(mutex_);
  return open_.size() + num_pending_notices_;
}

// This thread runs with normal priority: requests wait for it, and it uses little CPU time.
void PeerFetcher::run() {
  for (;;) {
    {
      const std::lock_guard lock(mutex_);
      if (stops_) break;
    }
    start_pending();
    wait();
    for (const std::unique_ptr<Link>& link : links_) advance(*link);
    std::erase_if(links_, [](const std::unique_ptr<Link>& link) { return link->is_over; });
  }
  end_all();
}

void PeerFetcher::start_pending() {
  while (links_.size() < kMaxPeerConnections) {
    std::shared_ptr<PeerFetch> fetch;
    {
      const std::lock_guard lock(mutex_);
      if (waiting_.empty()) return;
      // Fetches of blocks go first: requests wait for blocks, but nothing waits for a notice.
      const auto first = std::ranges::find(waiting_, PeerKind::read, [](const auto& one) { return one->kind; });
      const auto next = first == waiting_.end() ? waiting_.begin() : first;
      fetch = *next;
      waiting_.erase(next);
    }
    RemoteAddress address;
    address.host = fetch->source.host;
    address.port = fetch->source.port;
    const bool is_allowed = !options_.secret.empty() || address.is_local();
    const bool reads = fetch->kind == PeerKind::read;
    auto link =
        std::make_unique<Link>(fetch, is_allowed ? std::make_unique<NetStream>(address, std::make_shared<NetTls>()) : nullptr,
                               reads ? std::max<std::size_t>(kMaxPeerPayload, peer_block_payload(options_.block_bytes)) : kMaxPeerPayload);
    const TimePoint now = std::chrono::steady_clock::now();
    link->can_release = is_allowed;
    if (!is_allowed || fetch->is_cancelled || (reads && now > fetch->due)) {
      lose(*link, !is_allowed           ? "it is on another machine, and kv_key is not set"
                  : fetch->is_cancelled ? ""
                                        : "too many other fetches are in progress");
      continue;
    }
    double bytes = 0.0;
    for (const std::optional<TierJob>& job : fetch->jobs) bytes += job ? static_cast<double>(job->bytes) : 0.0;
    link->until = now + steady_seconds(options_.timeout_s);
    link->end = link->until + steady_seconds(bytes / options_.min_bytes_per_s);
    link->session.fingerprint = options_.fingerprint;
    PeerHello hello{.fingerprint = options_.fingerprint};
    const bool has_nonce = getrandom(hello.nonce.data(), hello.nonce.size(), 0) == static_cast<ssize_t>(sizeof(PeerNonce));
    QUIRE_CHECK(has_nonce, "the system provides random bytes");
    link->session.consumer = hello.nonce;
    PeerFrameCodec::add_hello(link->link.out(), hello);
    links_.push_back(std::move(link));
  }
}

void PeerFetcher::wait() {
  std::array<pollfd, kMaxPeerConnections + 1> polled{};
  polled[0] = {.fd = wake_.descriptor(), .events = POLLIN, .revents = 0};
  for (std::size_t i = 0; i < links_.size(); ++i)
    polled[i + 1] = {.fd = links_[i]->link.descriptor(), .events = links_[i]->link.events(), .revents = 0};
  poll(polled.data(), links_.size() + 1, links_.empty() ? -1 : kFetchTick_ms);
  wake_.taken();
}

void PeerFetcher::advance(Link& link) {
  if (link.fetch->is_cancelled) return lose(link, {});
  for (int num_frames = 0; num_frames < kFramesPerTurn; ++num_frames) {
    const bool is_there = link.link.advance();
    const std::optional<PeerFrame> frame = link.link.next();
    if (frame) {
      if (!take_frame(link, *frame)) return;
      continue;
    }
    const TimePoint now = std::chrono::steady_clock::now();
    if (!is_there || link.link.is_lost()) return lose(link, link.link.lost_reason());
    if (now > link.until || now > link.end) return lose(link, "it did not answer within the time limit");
    return;
  }
}

// Handles one frame. Returns whether more frames may follow.
bool PeerFetcher::take_frame(Link& link, const PeerFrame& frame) {
  PeerFetch& fetch = *link.fetch;
  link.until = std::chrono::steady_clock::now() + steady_seconds(options_.timeout_s);
  if (const auto end = PeerFrameCodec::read_bye(frame)) {
    if (*end == PeerCloseReason::served && link.has_sent_done) {
      finish(link);
      return false;
    }
    link.can_release = *end == PeerCloseReason::busy;
    lose(link, peer_close_reason_name(*end));
    return false;
  }
  if (link.is_accepted) return take_block(link, frame);
  const std::optional<PeerWelcome> welcome = codec_.read_welcome(frame, link.session);
  if (!welcome || welcome->engine_id != fetch.source.engine_id) {
    link.can_release = false;
    lose(link, welcome ? "another server has this address now" : peer_close_reason_name(PeerCloseReason::not_verified));
    return false;
  }
  link.session.producer = welcome->nonce;
  link.is_accepted = true;
  if (fetch.kind != PeerKind::read) {
    request_release(link);
    return true;
  }
  codec_.add_request(
      link.link.out(), link.session, PeerKind::read,
      {.request_id = fetch.source.request_id, .first_block = fetch.first, .num_blocks = static_cast<std::uint32_t>(fetch.jobs.size())});
  return true;
}

bool PeerFetcher::take_block(Link& link, const PeerFrame& frame) {
  PeerFetch& fetch = *link.fetch;
  if (fetch.num_over == fetch.jobs.size()) {
    lose(link, "it sent more than was requested");
    return false;
  }
  std::optional<TierJob> taken = std::exchange(fetch.jobs[fetch.num_over], std::nullopt);
  QUIRE_CHECK(taken.has_value(), "blocks arrive in the order of their jobs");
  const TierJob job = *std::move(taken);
  const auto bytes = codec_.read_block(frame, link.session, job.name, fetch.first + fetch.num_over, job.bytes);
  ++fetch.num_over;
  const bool is_wanted = bytes && job.copy(*bytes);
  {
    const std::lock_guard lock(mutex_);
    stats_.num_loaded += is_wanted ? 1 : 0;
    stats_.bytes_loaded += is_wanted ? job.bytes : 0;
    stats_.num_refused += bytes ? 0 : 1;
  }
  job.over(!bytes ? TierOutcome::refused : is_wanted ? TierOutcome::done : TierOutcome::cancelled);
  if (!is_wanted) {
    lose(link, bytes ? "" : "a block from it does not match the requested offload key");
    return false;
  }
  if (fetch.num_over == fetch.jobs.size()) request_release(link);
  return true;
}

void PeerFetcher::request_release(Link& link) {
  link.has_sent_done = true;
  codec_.add_request(link.link.out(), link.session, link.fetch->kind == PeerKind::renew ? PeerKind::renew : PeerKind::done,
                     {.request_id = link.fetch->source.request_id});
}

// Ends a fetch whose connection was lost. The engine computes the blocks that have not arrived.
void PeerFetcher::lose(Link& link, std::string_view why) {
  PeerFetch& fetch = *link.fetch;
  const bool is_told = link.has_sent_done || !link.can_release;
  // Sets the problem before the jobs end, so that a caller that sees the failure also finds the reason.
  if (!why.empty()) {
    const std::lock_guard lock(mutex_);
    stats_.problem = fmt::format("{}:{}: {}", fetch.source.host, fetch.source.port, why);
  }
  end_jobs(fetch, fetch.is_cancelled ? TierOutcome::cancelled : TierOutcome::failed);
  finish(link);
  const std::lock_guard lock(mutex_);
  if (fetch.kind == PeerKind::read && !is_told) put(PeerKind::done, fetch.source);
}

void PeerFetcher::finish(Link& link) {
  link.is_over = true;
  const std::lock_guard lock(mutex_);
  if (link.fetch->kind == PeerKind::read)
    open_.erase(link.fetch->ticket);
  else
    --num_pending_notices_;
}

void PeerFetcher::end_jobs(PeerFetch& fetch, TierOutcome outcome) {
  // Counts failures before the jobs end, so that a caller that sees the end also finds the count.
  if (outcome == TierOutcome::failed) {
    const std::lock_guard lock(mutex_);
    stats_.num_failed += static_cast<std::uint64_t>(std::ranges::count_if(fetch.jobs, [](const auto& job) { return job.has_value(); }));
  }
  for (std::optional<TierJob>& job : fetch.jobs)
    if (const std::optional<TierJob> ended = std::exchange(job, std::nullopt)) ended->over(outcome);
  fetch.num_over = static_cast<std::uint32_t>(fetch.jobs.size());
}

void PeerFetcher::end_all() {
  for (const std::unique_ptr<Link>& link : links_) end_jobs(*link->fetch, TierOutcome::cancelled);
  links_.clear();
  std::vector<std::shared_ptr<PeerFetch>> left;
  {
    const std::lock_guard lock(mutex_);
    left.assign(waiting_.begin(), waiting_.end());
    waiting_.clear();
    open_.clear();
  }
  for (const std::shared_ptr<PeerFetch>& fetch : left) end_jobs(*fetch, TierOutcome::cancelled);
}

}  // namespace quire
