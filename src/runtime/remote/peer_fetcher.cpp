// Fetches a request's blocks from the server that has computed its prompt. One thread, which waits for nothing but poll() and the look-up
// of a host's name. It believes nothing: a block is handed on when its MAC is that of the key, this connection, and the name that the
// request's own tokens give it. One that is not ends the connection, and what has not come by then is computed. Jobs are called without the
// mutex.
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
#include "runtime/remote/remote_address.h"

namespace quire {
namespace {

constexpr std::size_t kMostPeerLinks = 8;
// Of those that only tell a producer something: where more wait, its leases end by themselves.
constexpr std::size_t kMostPeerNotices = 1024;
constexpr int kFramesOfTurn = 8;   // of one producer, before the next one has its turn
constexpr int kFetchTick_ms = 20;  // while anything is under way

std::chrono::steady_clock::duration fetch_seconds(double seconds) {
  return std::chrono::duration_cast<std::chrono::steady_clock::duration>(std::chrono::duration<double>(seconds));
}

}  // namespace

struct PeerFetcher::Errand {
  PeerKind kind = PeerKind::read;  // or done, renew
  std::uint64_t ticket = 0;        // read
  TimePoint due{};                 // by when it must be under way
  PeerSource source;
  std::uint32_t first = 0;
  std::vector<std::optional<TierJob>> jobs;
  std::uint32_t num_added = 0, num_over = 0;
  std::atomic<bool> is_cancelled = false;
};

struct PeerFetcher::Link {
  explicit Link(std::shared_ptr<Errand> whose, std::unique_ptr<NetStream> stream, std::size_t most_payload)
      : errand(std::move(whose)), link(std::move(stream), most_payload) {}
  std::shared_ptr<Errand> errand;
  PeerLink link;
  PeerSession session;
  TimePoint until, end;  // something must have come; all must have
  bool is_welcome = false, has_said_done = false, is_over = false;
  bool may_release = true;  // whoever is there is the producer, or may be
};

PeerFetcher::PeerFetcher(PeerFetcherOptions options) : options_(std::move(options)), seal_(options_.secret) {
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
  QUIRE_CHECK(num_blocks > 0, "an errand brings something");
  auto errand = std::make_shared<Errand>();
  errand->ticket = ticket;
  errand->source = std::move(source);
  errand->first = first;
  errand->jobs.resize(num_blocks);
  const std::lock_guard lock(mutex_);
  const bool is_new = open_.emplace(ticket, std::move(errand)).second;
  QUIRE_CHECK(is_new, "a ticket is used once");
}

void PeerFetcher::add(std::uint64_t ticket, std::uint32_t index, TierJob job) {
  {
    const std::lock_guard lock(mutex_);
    const auto found = open_.find(ticket);
    QUIRE_CHECK(found != open_.end(), "jobs belong to an errand that was announced");
    Errand& errand = *found->second;
    QUIRE_CHECK(index < errand.jobs.size() && !errand.jobs[index], "each block is asked for once");
    errand.jobs[index] = std::move(job);
    if (++errand.num_added < errand.jobs.size()) return;
    errand.due = std::chrono::steady_clock::now() + fetch_seconds(options_.patience_s);
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

// With the mutex held.
void PeerFetcher::put(PeerKind kind, PeerSource source) {
  if (num_notices_ >= kMostPeerNotices) return;
  ++num_notices_;
  auto errand = std::make_shared<Errand>();
  errand->kind = kind;
  errand->source = std::move(source);
  waiting_.push_back(std::move(errand));
  wake_.ring();
}

PeerFetcherStats PeerFetcher::stats() const {
  const std::lock_guard lock(mutex_);
  return stats_;
}

std::size_t PeerFetcher::num_open() const {
  const std::lock_guard lock(mutex_);
  return open_.size() + num_notices_;
}

// At no less than its share of the processors: requests wait for it, and it has little to do.
void PeerFetcher::run() {
  for (;;) {
    {
      const std::lock_guard lock(mutex_);
      if (stops_) break;
    }
    begin_some();
    wait();
    for (const std::unique_ptr<Link>& link : links_) go_on(*link);
    std::erase_if(links_, [](const std::unique_ptr<Link>& link) { return link->is_over; });
  }
  end_all();
}

void PeerFetcher::begin_some() {
  while (links_.size() < kMostPeerLinks) {
    std::shared_ptr<Errand> errand;
    {
      const std::lock_guard lock(mutex_);
      if (waiting_.empty()) return;
      // Requests wait for blocks; nobody waits for a notice.
      const auto first = std::ranges::find(waiting_, PeerKind::read, [](const auto& one) { return one->kind; });
      const auto next = first == waiting_.end() ? waiting_.begin() : first;
      errand = *next;
      waiting_.erase(next);
    }
    RemoteAddress address;
    address.host = errand->source.host;
    address.port = errand->source.port;
    const bool is_allowed = !options_.secret.empty() || address.is_local();
    const bool reads = errand->kind == PeerKind::read;
    auto link = std::make_unique<Link>(
        errand, is_allowed ? std::make_unique<NetStream>(address, std::make_shared<NetTls>()) : nullptr,
        reads ? std::max<std::size_t>(kMostPeerPayload, peer_block_payload(options_.block_bytes)) : kMostPeerPayload);
    const TimePoint now = std::chrono::steady_clock::now();
    link->may_release = is_allowed;
    if (!is_allowed || errand->is_cancelled || (reads && now > errand->due)) {
      lose(*link, !is_allowed ? "it is another machine, and there is no key" : errand->is_cancelled ? "" : "too much else is asked for");
      continue;
    }
    double bytes = 0.0;
    for (const std::optional<TierJob>& job : errand->jobs) bytes += job ? static_cast<double>(job->bytes) : 0.0;
    link->until = now + fetch_seconds(options_.patience_s);
    link->end = link->until + fetch_seconds(bytes / options_.least_bytes_per_s);
    link->session.fingerprint = options_.fingerprint;
    PeerHello hello{.fingerprint = options_.fingerprint};
    const bool has_nonce = getrandom(hello.nonce.data(), hello.nonce.size(), 0) == static_cast<ssize_t>(sizeof(PeerNonce));
    QUIRE_CHECK(has_nonce, "the system gives random numbers");
    link->session.consumer = hello.nonce;
    PeerSeal::add_hello(link->link.out(), hello);
    links_.push_back(std::move(link));
  }
}

void PeerFetcher::wait() {
  std::array<pollfd, kMostPeerLinks + 1> polled{};
  polled[0] = {.fd = wake_.descriptor(), .events = POLLIN, .revents = 0};
  for (std::size_t i = 0; i < links_.size(); ++i)
    polled[i + 1] = {.fd = links_[i]->link.descriptor(), .events = links_[i]->link.events(), .revents = 0};
  poll(polled.data(), links_.size() + 1, links_.empty() ? -1 : kFetchTick_ms);
  wake_.taken();
}

void PeerFetcher::go_on(Link& link) {
  if (link.errand->is_cancelled) return lose(link, {});
  for (int num_frames = 0; num_frames < kFramesOfTurn; ++num_frames) {
    const bool is_there = link.link.go_on();
    const std::optional<PeerFrame> frame = link.link.next();
    if (frame) {
      if (!take_frame(link, *frame)) return;
      continue;
    }
    const TimePoint now = std::chrono::steady_clock::now();
    if (!is_there || link.link.is_lost()) return lose(link, link.link.why_lost());
    if (now > link.until || now > link.end) return lose(link, "nothing came from it in time");
    return;
  }
}

// Whether there may be more.
bool PeerFetcher::take_frame(Link& link, const PeerFrame& frame) {
  Errand& errand = *link.errand;
  link.until = std::chrono::steady_clock::now() + fetch_seconds(options_.patience_s);
  if (const auto end = PeerSeal::read_bye(frame)) {
    if (*end == PeerEnd::served && link.has_said_done) {
      finish(link);
      return false;
    }
    link.may_release = *end == PeerEnd::busy;
    lose(link, peer_end_name(*end));
    return false;
  }
  if (link.is_welcome) return take_block(link, frame);
  const std::optional<PeerWelcome> welcome = seal_.read_welcome(frame, link.session);
  if (!welcome || welcome->engine_id != errand.source.engine_id) {
    link.may_release = false;
    lose(link, welcome ? "another server is there by now" : peer_end_name(PeerEnd::not_verified));
    return false;
  }
  link.session.producer = welcome->nonce;
  link.is_welcome = true;
  if (errand.kind != PeerKind::read) {
    ask_done(link);
    return true;
  }
  seal_.add_ask(
      link.link.out(), link.session, PeerKind::read,
      {.request_id = errand.source.request_id, .first_block = errand.first, .num_blocks = static_cast<std::uint32_t>(errand.jobs.size())});
  return true;
}

bool PeerFetcher::take_block(Link& link, const PeerFrame& frame) {
  Errand& errand = *link.errand;
  if (errand.num_over == errand.jobs.size()) {
    lose(link, "it says more than it was asked for");
    return false;
  }
  std::optional<TierJob> taken = std::exchange(errand.jobs[errand.num_over], std::nullopt);
  QUIRE_CHECK(taken.has_value(), "jobs go in their order");
  const TierJob job = *std::move(taken);
  const auto bytes = seal_.read_block(frame, link.session, job.name, errand.first + errand.num_over, job.bytes);
  ++errand.num_over;
  const bool is_wanted = bytes && job.copy(*bytes);
  {
    const std::lock_guard lock(mutex_);
    stats_.num_loaded += is_wanted ? 1 : 0;
    stats_.bytes_loaded += is_wanted ? job.bytes : 0;
    stats_.num_refused += bytes ? 0 : 1;
  }
  job.over(!bytes ? TierOutcome::refused : is_wanted ? TierOutcome::done : TierOutcome::given_up);
  if (!is_wanted) {
    lose(link, bytes ? "" : "a block of it is not what this request's tokens name");
    return false;
  }
  if (errand.num_over == errand.jobs.size()) ask_done(link);
  return true;
}

void PeerFetcher::ask_done(Link& link) {
  link.has_said_done = true;
  seal_.add_ask(link.link.out(), link.session, link.errand->kind == PeerKind::renew ? PeerKind::renew : PeerKind::done,
                {.request_id = link.errand->source.request_id});
}

// What has not come by now is computed.
void PeerFetcher::lose(Link& link, std::string_view why) {
  Errand& errand = *link.errand;
  const bool is_told = link.has_said_done || !link.may_release;
  // First: who sees that it has failed finds why.
  if (!why.empty()) {
    const std::lock_guard lock(mutex_);
    stats_.problem = fmt::format("{}:{}: {}", errand.source.host, errand.source.port, why);
  }
  end_jobs(errand, errand.is_cancelled ? TierOutcome::given_up : TierOutcome::failed);
  finish(link);
  const std::lock_guard lock(mutex_);
  if (errand.kind == PeerKind::read && !is_told) put(PeerKind::done, errand.source);
}

void PeerFetcher::finish(Link& link) {
  link.is_over = true;
  const std::lock_guard lock(mutex_);
  if (link.errand->kind == PeerKind::read)
    open_.erase(link.errand->ticket);
  else
    --num_notices_;
}

void PeerFetcher::end_jobs(Errand& errand, TierOutcome outcome) {
  // Counted first: who sees that they are over finds them counted.
  if (outcome == TierOutcome::failed) {
    const std::lock_guard lock(mutex_);
    stats_.num_failed += static_cast<std::uint64_t>(std::ranges::count_if(errand.jobs, [](const auto& job) { return job.has_value(); }));
  }
  for (std::optional<TierJob>& job : errand.jobs)
    if (const std::optional<TierJob> ended = std::exchange(job, std::nullopt)) ended->over(outcome);
  errand.num_over = static_cast<std::uint32_t>(errand.jobs.size());
}

void PeerFetcher::end_all() {
  for (const std::unique_ptr<Link>& link : links_) end_jobs(*link->errand, TierOutcome::given_up);
  links_.clear();
  std::vector<std::shared_ptr<Errand>> left;
  {
    const std::lock_guard lock(mutex_);
    left.assign(waiting_.begin(), waiting_.end());
    waiting_.clear();
    open_.clear();
  }
  for (const std::shared_ptr<Errand>& errand : left) end_jobs(*errand, TierOutcome::given_up);
}

}  // namespace quire
