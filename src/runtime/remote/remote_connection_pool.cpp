// One thread runs a pool; any thread may call submit() and last_problem(). Every wait has a deadline, except host name resolution, which
// delays only this pool. Every reply belongs to a command, and an invalid reply ends the connection. If the store may be down, a lost
// connection also ends the queued commands as lost, so that no command waits for the store.
#include "runtime/remote/remote_connection_pool.h"

#include <poll.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <ranges>
#include <utility>

#include "base/check.h"
#include "base/seconds.h"
#include "base/thread_nice.h"

namespace quire {
namespace {

constexpr std::uint32_t kNumSlots = 16'384;
constexpr std::uint32_t kMaxRedirects = 4;  // maximum number of redirects of a command
constexpr std::size_t kMaxNodes = 128;      // maximum number of servers of a cluster, which limits file descriptors

constexpr std::array<std::uint16_t, 256> make_crc_table() {
  std::array<std::uint16_t, 256> table{};
  for (std::uint32_t byte = 0; byte < 256; ++byte) {
    std::uint32_t crc = byte << 8U;
    for (int bit = 0; bit < 8; ++bit) crc = (crc << 1U) ^ ((crc & 0x8000U) != 0 ? 0x1021U : 0U);
    table[byte] = static_cast<std::uint16_t>(crc);
  }
  return table;
}

}  // namespace

std::uint16_t cluster_slot_of(std::string_view key) {
  static constexpr std::array<std::uint16_t, 256> kTable = make_crc_table();
  if (const std::size_t open = key.find('{'); open != std::string_view::npos)
    if (const std::size_t close = key.find('}', open); close != std::string_view::npos && close > open + 1)
      key = key.substr(open + 1, close - open - 1);
  std::uint32_t crc = 0;
  for (const char byte : key) crc = ((crc << 8U) ^ kTable[((crc >> 8U) ^ static_cast<std::uint8_t>(byte)) & 0xffU]) & 0xffffU;
  return static_cast<std::uint16_t>(crc % kNumSlots);
}

RemoteConnectionPool::RemoteConnectionPool(RemoteConnectionPoolOptions options) : options_(std::move(options)) {
  nodes_.push_back(std::make_unique<Node>(Node{.address = options_.address, .links = {}}));
  nodes_.front()->links.resize(options_.num_connections);
  thread_ = std::thread([this] { run(); });
}

RemoteConnectionPool::~RemoteConnectionPool() {
  {
    const std::lock_guard lock(mutex_);
    stops_ = true;
  }
  wake_.ring();
  thread_.join();
}

void RemoteConnectionPool::submit(RemoteCommand command) {
  {
    const std::lock_guard lock(mutex_);
    submitted_.push_back({.command = std::move(command), .node = {}});
  }
  wake_.ring();
}

std::string RemoteConnectionPool::last_problem() const {
  const std::lock_guard lock(mutex_);
  return problem_;
}

void RemoteConnectionPool::note(std::string problem) {
  const std::lock_guard lock(mutex_);
  problem_ = std::move(problem);
}

void RemoteConnectionPool::run() {
  // Requests wait for loads; stores must not slow other threads down.
  options_.yields_cores ? set_thread_batch_policy(kBackgroundNice) : set_thread_nice(kBackgroundNice);
  std::optional<CpuShare> share;
  if (options_.yields_cores) share.emplace(kStoringCpuShare);
  for (;;) {
    take_submitted();
    {
      const std::lock_guard lock(mutex_);
      if (stops_) break;
    }
    std::chrono::milliseconds rest(0);
    while (start_pending(share ? &*share : nullptr, rest)) {
    }
    wait(rest);
    // The loop may add nodes. New nodes have no replies yet.
    for (std::size_t node = 0, end = nodes_.size(); node < end; ++node)
      for (Link& link : nodes_[node]->links) advance(node, link);
  }
  end_all();
}

void RemoteConnectionPool::take_submitted() {
  const std::lock_guard lock(mutex_);
  std::ranges::move(submitted_, std::back_inserter(jobs_));
  submitted_.clear();
}

// Returns whether a command was begun or ended. If the CPU share delays the next command, sets `rest` to the time until the next attempt.
bool RemoteConnectionPool::start_pending(CpuShare* share, std::chrono::milliseconds& rest) {
  if (jobs_.empty()) return false;
  if (share != nullptr && !share->may_continue()) {
    rest = kCpuShareSleep;
    return false;
  }
  Job job = std::move(jobs_.front());
  jobs_.pop_front();
  if (start_one(job)) return true;
  jobs_.push_front(std::move(job));
  return false;
}

// Sends the command. Returns false if the connection already has `depth` commands in flight.
bool RemoteConnectionPool::start_one(Job& job) {
  std::size_t node = job.node.value_or(0);
  if (!job.node && !node_of_slot_.empty()) node = node_of_slot_[cluster_slot_of(job.command.key)];
  QUIRE_CHECK(node < nodes_.size(), "a cluster slot belongs to a known server");
  std::vector<Link>& links = nodes_[node]->links;
  Link* const link = &links[std::hash<std::string>()(job.command.key) % links.size()];
  if (link->sent.size() >= options_.depth) return false;
  words_.clear();
  if (!job.command.write(words_)) {
    job.command.over({.kind = RemoteReplyKind::unsent});
    return true;
  }
  if (link->connection == nullptr)
    link->connection = std::make_unique<RemoteConnection>(nodes_[node]->address, options_.tls, options_.max_reply_bytes);
  if (link->sent.empty()) link->since = SteadyClock::now();
  if (job.is_asking) {
    const std::array<std::string, 1> asking = {"ASKING"};
    link->connection->send(asking);
    link->sent.push_back({.command = {.key = {}, .write = {}, .over = [](const RemoteReply&) {}}, .node = {}});
  }
  link->connection->send(words_);
  link->sent.push_back(std::move(job));
  return true;
}

// Waits until a command is submitted, a connection can read or write, or the first deadline for a reply passes.
void RemoteConnectionPool::wait(std::chrono::milliseconds rest) {
  std::vector<pollfd> polled = {{.fd = wake_.descriptor(), .events = POLLIN, .revents = 0}};
  std::optional<SteadyClock::time_point> until;
  const auto timeout = steady_seconds(options_.timeout_s);
  for (const std::unique_ptr<Node>& node : nodes_)
    for (const Link& link : node->links) {
      if (link.connection == nullptr) continue;
      polled.push_back({.fd = link.connection->descriptor(), .events = link.connection->events(), .revents = 0});
      if (link.connection->descriptor() < 0) until = SteadyClock::now();
      if (!link.sent.empty()) until = std::min(until.value_or(link.since + timeout), link.since + timeout);
    }
  if (rest.count() > 0) until = std::min(until.value_or(SteadyClock::now() + rest), SteadyClock::now() + rest);
  int timeout_ms = -1;
  if (until)
    timeout_ms =
        static_cast<int>(std::max<std::int64_t>(0, std::chrono::ceil<std::chrono::milliseconds>(*until - SteadyClock::now()).count()));
  poll(polled.data(), polled.size(), timeout_ms);
  wake_.taken();
}

void RemoteConnectionPool::advance(std::size_t node, Link& link) {
  if (link.connection == nullptr) return;
  const bool is_there = link.connection->advance();
  while (const std::optional<RemoteReply> reply = link.connection->next()) {
    if (link.sent.empty()) {
      note("the store sent a reply without a command");
      return lose(link, {}, false);
    }
    link.since = SteadyClock::now();
    take(node, link, *reply);
  }
  if (!is_there || link.connection->is_lost()) return lose(link, link.connection->lost_reason(), !link.connection->has_opened());
  check_timeout(link, SteadyClock::now());
}

void RemoteConnectionPool::take(std::size_t node, Link& link, const RemoteReply& reply) {
  Job job = std::move(link.sent.front());
  link.sent.pop_front();
  if (reply.kind == RemoteReplyKind::error) {
    if (follow_redirect(node, job, reply.text)) return;
    note(std::string(reply.text));
  }
  job.command.over(reply);
}

// Queues the command for the server that the error names. "MOVED slot host:port" redirects all keys of the slot, "ASK slot host:port" only
// this command. Returns false if the error is not a valid redirect.
bool RemoteConnectionPool::follow_redirect(std::size_t node, Job& job, std::string_view error) {
  const bool is_moved = error.starts_with("MOVED "), is_asked = error.starts_with("ASK ");
  if ((!is_moved && !is_asked) || job.command.key.empty() || ++job.num_redirects > kMaxRedirects) return false;
  const auto other = node_at(node, error.substr(error.rfind(' ') + 1));
  if (!other) return false;
  if (is_moved) {
    if (node_of_slot_.empty()) node_of_slot_.resize(kNumSlots);
    node_of_slot_[cluster_slot_of(job.command.key)] = static_cast<std::uint16_t>(*other);
  }
  job.node = other;
  job.is_asking = is_asked;
  jobs_.push_front(std::move(job));
  return true;
}

// Returns the index of the cluster's server at "host:port", which is added if it is new. An empty host means the host of `node`. Returns
// nullopt if the address is invalid or there are too many servers.
std::optional<std::size_t> RemoteConnectionPool::node_at(std::size_t node, std::string_view where) {
  const std::size_t colon = where.rfind(':');
  if (colon == std::string_view::npos) return std::nullopt;
  std::uint16_t port = 0;
  const std::string_view digits = where.substr(colon + 1);
  const auto [end, problem] = std::from_chars(digits.data(), digits.data() + digits.size(), port);
  if (problem != std::errc() || end != digits.data() + digits.size() || port == 0) return std::nullopt;
  RemoteAddress address = nodes_[node]->address;
  address.unix_path.clear();
  address.port = port;
  if (colon > 0 && where.substr(0, colon) != "?") address.host = where.substr(0, colon);
  if (address.host.empty() || address.host.size() > 255) return std::nullopt;
  for (std::size_t i = 0; i < nodes_.size(); ++i)
    if (nodes_[i]->address.host == address.host && nodes_[i]->address.port == port && nodes_[i]->address.unix_path.empty()) return i;
  if (nodes_.size() >= kMaxNodes) return std::nullopt;
  nodes_.push_back(std::make_unique<Node>(Node{.address = std::move(address), .links = {}}));
  nodes_.back()->links.resize(options_.num_connections);
  return nodes_.size() - 1;
}

void RemoteConnectionPool::check_timeout(Link& link, SteadyClock::time_point now) {
  if (link.sent.empty() || std::chrono::duration<double>(now - link.since).count() < options_.timeout_s) return;
  lose(link, "the store did not reply within the time limit", true);
}

// Closes the connection and ends its commands as lost. With `all`, queued commands end as lost, too, because the store may be down.
void RemoteConnectionPool::lose(Link& link, const std::string& why, bool all) {
  // The loss of a connection is a problem only if a reply was awaited.
  if (!link.sent.empty()) note(why);
  link.connection.reset();
  std::deque<Job> lost = std::exchange(link.sent, {});
  if (all) {
    std::ranges::move(jobs_, std::back_inserter(lost));
    jobs_.clear();
    // Other servers of the cluster may have taken over the slots.
    node_of_slot_.clear();
  }
  for (const Job& job : lost) job.command.over({.kind = RemoteReplyKind::lost});
}

void RemoteConnectionPool::end_all() {
  take_submitted();
  for (const std::unique_ptr<Node>& node : nodes_)
    for (Link& link : node->links) lose(link, "", true);
  for (const Job& job : std::exchange(jobs_, {})) job.command.over({.kind = RemoteReplyKind::lost});
}

}  // namespace quire
