// Serves the blocks of requests to the servers that continue the requests. One thread accepts, reads and writes. It never waits for input,
// and uses memory for at most one received frame per connection. A request is handled only after its MAC is verified. The mutex is not held
// while a block is copied, sealed or sent, or while a job's `over` runs.
#include "runtime/remote/peer_server.h"

#include <fmt/format.h>
#include <netdb.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/random.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <system_error>
#include <utility>

#include "base/check.h"
#include "base/seconds.h"
#include "runtime/remote/peer_server_state.h"

namespace quire {
namespace {

constexpr std::size_t kMaxPeerClients = 64;
constexpr int kPeerBacklog = 1024;       // if the backlog is full, connecting takes a second longer
constexpr int kAcceptsPerTurn = 16;      // accepted connections per turn, so that each client can prove the secret soon
constexpr int kBlocksPerTurn = 8;        // blocks per turn of one consumer
constexpr int kRequestsPerTurn = 64;     // requests per turn of one consumer
constexpr double kIdleTimeout_s = 60.0;  // longest time between two requests by offload key
constexpr int kPeerTick_ms = 50;         // poll() timeout while there is a lease or a connection

std::string system_problem() {
  return std::generic_category().message(errno);
}

std::uint16_t port_of(int descriptor) {
  sockaddr_storage address{};
  socklen_t size = sizeof address;
  getsockname(descriptor, reinterpret_cast<sockaddr*>(&address), &size);
  return address.ss_family == AF_INET6 ? ntohs(reinterpret_cast<const sockaddr_in6&>(address).sin6_port)
                                       : ntohs(reinterpret_cast<const sockaddr_in&>(address).sin_port);
}

struct FreePeerAddresses {
  void operator()(addrinfo* addresses) const { freeaddrinfo(addresses); }
};

Result<int> listen_at(const std::string& host, std::uint16_t port) {
  const auto refuse = [&](const char* field, std::string problem, const char* remedy) {
    return fail(ErrorCode::invalid_argument, field, std::move(problem), remedy);
  };
  addrinfo wanted{};
  wanted.ai_socktype = SOCK_STREAM;
  wanted.ai_flags = AI_PASSIVE;
  addrinfo* found = nullptr;
  const int error = getaddrinfo(host.c_str(), std::to_string(port).c_str(), &wanted, &found);
  const std::unique_ptr<addrinfo, FreePeerAddresses> addresses(found);
  if (error != 0)
    return refuse("kv_host", fmt::format("cannot resolve {}: {}", host, gai_strerror(error)), "use an address of this machine");
  const int descriptor = socket(addresses->ai_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
  if (descriptor < 0)
    return refuse("kv_host", host + ": cannot open a socket: " + system_problem(),
                  "use an address of this machine, or allow more open files");
  const int is_on = 1;
  setsockopt(descriptor, SOL_SOCKET, SO_REUSEADDR, &is_on, sizeof is_on);
  if (bind(descriptor, addresses->ai_addr, addresses->ai_addrlen) == 0 && listen(descriptor, kPeerBacklog) == 0) return descriptor;
  const bool is_taken = errno == EADDRINUSE || errno == EACCES;
  const std::string problem = fmt::format("cannot listen on {}:{}: {}", host, port, system_problem());
  close(descriptor);
  return is_taken ? refuse("kv_port", problem, "use another port, or 0 for any free port")
                  : refuse("kv_host", problem, "use an address of this machine");
}

}  // namespace

Result<std::unique_ptr<PeerServer>> PeerServer::open(PeerServerOptions options) {
  const Result<int> listener = listen_at(options.host, options.port);
  if (!listener) return std::unexpected(listener.error());
  const std::uint16_t port = port_of(*listener);
  return std::unique_ptr<PeerServer>(new PeerServer(std::move(options), *listener, port));
}

PeerServer::PeerServer(PeerServerOptions options, int listener, std::uint16_t port)
    : options_(std::move(options)), listener_(listener), port_(port), codec_(options_.secret), longest_(steady_seconds(options_.lease_s)) {
  thread_ = std::thread([this] { run(); });
}

PeerServer::~PeerServer() {
  {
    const std::lock_guard lock(mutex_);
    stops_ = true;
  }
  wake_.ring();
  thread_.join();
  close(listener_);
}

void PeerServer::open_lease(std::uint64_t ticket, std::string request_id, std::vector<Block> blocks) {
  const auto lease = std::make_shared<Lease>();
  lease->ticket = ticket;
  lease->request_id = std::move(request_id);
  lease->jobs.resize(blocks.size());
  lease->blocks = std::move(blocks);
  const std::lock_guard lock(mutex_);
  lease->until = std::chrono::steady_clock::now() + longest_;
  const bool is_new = tickets_.emplace(lease->request_id, ticket).second && leases_.emplace(ticket, lease).second;
  QUIRE_CHECK(is_new, "a ticket or request id has at most one lease");
  ++stats_.num_leases;
  wake_.ring();  // without a lease, the thread waits without a time limit
}

void PeerServer::keep(std::uint64_t ticket, std::uint32_t index, TierJob job) {
  {
    const std::lock_guard lock(mutex_);
    const auto found = leases_.find(ticket);
    if (found == leases_.end() || found->second->is_over) {
      late_jobs_.push_back(std::move(job));
    } else {
      Lease& lease = *found->second;
      QUIRE_CHECK(index < lease.jobs.size() && !lease.jobs[index], "each block of a lease is added once");
      lease.jobs[index] = std::move(job);
      if (++lease.num_kept < lease.jobs.size()) return;
    }
  }
  wake_.ring();
}

void PeerServer::end(std::uint64_t ticket) {
  std::shared_ptr<Lease> lease;
  {
    const std::lock_guard lock(mutex_);
    const auto found = leases_.find(ticket);
    if (found == leases_.end()) return;
    lease = found->second;
    lease->is_over = true;
  }
  wake_.ring();
  // Waits for the copy in progress, if any; no other copy begins.
  const std::lock_guard copying(lease->copying);
}

void PeerServer::expire_leases(double seconds) {
  const std::lock_guard lock(mutex_);
  longest_ = std::min(longest_, steady_seconds(seconds));
  const TimePoint until = std::chrono::steady_clock::now() + longest_;
  for (auto& [ticket, lease] : leases_) lease->until = std::min(lease->until, until);
}

PeerServerStats PeerServer::stats() const {
  const std::lock_guard lock(mutex_);
  PeerServerStats stats = stats_;
  stats.num_refused = num_refused_;
  stats.num_evicted_clients = num_evicted_clients_;
  stats.num_open_leases = static_cast<std::uint32_t>(leases_.size());
  return stats;
}

// This thread runs with normal priority: requests of other servers wait for it, and it uses little CPU time.
void PeerServer::run() {
  for (;;) {
    {
      const std::lock_guard lock(mutex_);
      if (stops_) break;
    }
    wait();
    accept_some();
    std::erase_if(clients_, [this](const std::unique_ptr<Client>& client) { return !serve(*client); });
    end_leases(false);
  }
  clients_.clear();
  end_leases(true);
}

void PeerServer::wait() {
  std::vector<pollfd> polled;
  polled.reserve(clients_.size() + 2);
  polled.push_back({.fd = wake_.descriptor(), .events = POLLIN, .revents = 0});
  // If the process has no free descriptor, new connections wait in the backlog.
  polled.push_back({.fd = is_out_of_descriptors_ ? -1 : listener_, .events = POLLIN, .revents = 0});
  bool has_leases = false;
  {
    const std::lock_guard lock(mutex_);
    has_leases = !leases_.empty() || !late_jobs_.empty();
  }
  for (const std::unique_ptr<Client>& client : clients_)
    polled.push_back({.fd = client->link.descriptor(), .events = client->link.events(client->has_more), .revents = 0});
  poll(polled.data(), polled.size(), has_leases || is_out_of_descriptors_ || !clients_.empty() ? kPeerTick_ms : -1);
  wake_.taken();
}

void PeerServer::accept_some() {
  for (int i = 0; i < kAcceptsPerTurn; ++i) {
    const int descriptor = accept4(listener_, nullptr, nullptr, SOCK_NONBLOCK | SOCK_CLOEXEC);
    is_out_of_descriptors_ = descriptor < 0 && (errno == EMFILE || errno == ENFILE || errno == ENOMEM || errno == ENOBUFS);
    if (descriptor < 0) return;
    auto client = std::make_unique<Client>(descriptor);
    client->until = std::chrono::steady_clock::now() + steady_seconds(std::min(options_.handshake_s, options_.timeout_s));
    // refuse() reaches the client only if the socket has room for the frame now.
    if (clients_.size() >= kMaxPeerClients && !make_room()) {
      refuse(*client, PeerCloseReason::busy);
      client->link.advance();
      continue;
    }
    clients_.push_back(std::move(client));
  }
}

// Removes the oldest unverified client, so that unverified connections cannot occupy all connection slots. Prefers clients that have not
// sent a valid hello, which requires the model's fingerprint. `clients_` is in order of arrival.
bool PeerServer::make_room() {
  for (const bool is_greeted : {false, true}) {
    const auto found = std::ranges::find_if(
        clients_, [&](const std::unique_ptr<Client>& client) { return !client->is_verified && client->is_greeted == is_greeted; });
    if (found == clients_.end()) continue;
    clients_.erase(found);
    ++num_evicted_clients_;
    return true;
  }
  return false;
}

// Handles the client's output and input for one turn. Returns false if the connection must be closed.
bool PeerServer::serve(Client& client) {
  client.has_more = false;
  for (int num_blocks = 0, num_frames = 0;;) {
    const bool had_output = client.link.has_output();
    if (!client.link.advance()) return false;
    const bool is_flushed = !client.link.has_output();
    const TimePoint now = std::chrono::steady_clock::now();
    const bool may_be_silent = client.is_block_client && !client.is_sending_requested() && !client.is_ending;
    if (client.is_verified && had_output && is_flushed)
      client.until = now + steady_seconds(may_be_silent ? kIdleTimeout_s : options_.timeout_s);
    if (now > client.until) return false;
    if (!is_flushed) return true;
    if (client.is_ending) return false;
    if (client.lease != nullptr || client.is_sending_requested()) {
      client.lease != nullptr ? send_next(client) : send_requested_blocks(client);
      client.has_more = ++num_blocks == kBlocksPerTurn;
      if (client.has_more) return true;
      continue;
    }
    const std::optional<PeerFrame> frame = client.link.next();
    if (!frame) return !client.link.is_lost();
    client.has_more = ++num_frames == kRequestsPerTurn;
    if (!take_frame(client, *frame)) return false;
    // The handshake deadline applies until the client is verified.
    if (client.is_verified) client.until = now + steady_seconds(options_.timeout_s);
    if (client.has_more) return true;
  }
}

void PeerServer::send_next(Client& client) {
  const std::shared_ptr<Lease> lease = client.lease;
  const Block& block = lease->blocks[client.next_block];
  std::span<std::byte> bytes = PeerFrameCodec::add_block(client.link.out(), client.next_block, block.bytes);
  bool is_there = false;
  {
    const std::lock_guard copying(lease->copying);
    const TierJob* kept = nullptr;
    {
      const std::lock_guard lock(mutex_);
      is_there = !lease->is_over;
      // Only this thread ends the lease, so the job stays valid.
      const std::optional<TierJob>& job = lease->jobs[client.next_block];
      kept = job ? &*job : nullptr;
      lease->was_served = true;
      lease->until = std::max(lease->until, std::chrono::steady_clock::now() + steady_seconds(options_.timeout_s));
    }
    is_there = is_there && (kept != nullptr ? kept->copy(bytes) : block.copy(bytes));
  }
  if (!is_there) {
    end(lease->ticket);
    client.link.out().clear();
    client.lease = nullptr;
    refuse(client, PeerCloseReason::unknown_request);
    return;
  }
  codec_.seal_block(client.link.out(), client.session, block.name, block.bytes);
  {
    const std::lock_guard lock(mutex_);
    ++stats_.num_sent;
    stats_.bytes_sent += block.bytes;
  }
  if (++client.next_block == client.end_block) client.lease = nullptr;
}

// Handles one frame. Returns false if the connection must be closed.
bool PeerServer::take_frame(Client& client, const PeerFrame& frame) {
  if (!client.is_greeted) return handle_hello(client, frame);
  return frame.kind == PeerKind::find || frame.kind == PeerKind::take ? handle_keys(client, frame) : answer(client, frame);
}

bool PeerServer::handle_hello(Client& client, const PeerFrame& frame) {
  const std::optional<PeerHello> hello = PeerFrameCodec::read_hello(frame);
  if (!hello) return false;
  if (hello->version != kPeerVersion) return refuse(client, PeerCloseReason::other_version);
  if (hello->fingerprint != options_.fingerprint) return refuse(client, PeerCloseReason::other_model);
  client.session.fingerprint = options_.fingerprint;
  client.session.consumer = hello->nonce;
  if (getrandom(client.session.producer.data(), client.session.producer.size(), 0) != static_cast<ssize_t>(sizeof(PeerNonce))) return false;
  codec_.add_welcome(client.link.out(), client.session, options_.engine_id);
  client.is_greeted = true;
  return true;
}

bool PeerServer::answer(Client& client, const PeerFrame& frame) {
  const std::optional<PeerRequest> request = codec_.read_request(frame, client.session);
  if (!request) return refuse(client, PeerCloseReason::not_verified);
  client.is_verified = true;
  const std::lock_guard lock(mutex_);
  const auto found = tickets_.find(request->request_id);
  const std::shared_ptr<Lease> lease = found == tickets_.end() ? nullptr : leases_.at(found->second);
  const bool is_known = lease != nullptr && !lease->is_over;
  if (!is_known) {
    client.is_ending = true;
    PeerFrameCodec::add_bye(client.link.out(), PeerCloseReason::unknown_request);
    return true;
  }
  if (frame.kind == PeerKind::read) {
    const std::uint64_t end = std::uint64_t{request->first_block} + request->num_blocks;
    if (request->num_blocks == 0 || end > lease->jobs.size()) return false;
    client.lease = lease;
    client.next_block = request->first_block;
    client.end_block = static_cast<std::uint32_t>(end);
    return true;
  }
  if (frame.kind == PeerKind::renew) lease->until = std::max(lease->until, std::chrono::steady_clock::now() + longest_);
  if (frame.kind == PeerKind::done) lease->is_over = lease->was_served = true;
  client.is_ending = true;
  PeerFrameCodec::add_bye(client.link.out(), PeerCloseReason::served);
  return true;
}

bool PeerServer::refuse(Client& client, PeerCloseReason reason) {
  client.is_ending = true;
  PeerFrameCodec::add_bye(client.link.out(), reason);
  ++num_refused_;
  return true;
}

// Ends leases that have expired or are marked as over; with `all`, ends all leases. Called on the server's thread.
void PeerServer::end_leases(bool all) {
  std::vector<std::shared_ptr<Lease>> over;
  std::vector<TierJob> late;
  {
    const std::lock_guard lock(mutex_);
    const TimePoint now = std::chrono::steady_clock::now();
    late.swap(late_jobs_);
    for (auto at = leases_.begin(); at != leases_.end();) {
      const std::shared_ptr<Lease>& lease = at->second;
      const bool is_expired = !lease->is_over && now >= lease->until;
      if (!all && !lease->is_over && !is_expired) {
        ++at;
        continue;
      }
      lease->is_over = true;
      stats_.num_expired_leases += is_expired ? 1 : 0;
      over.push_back(lease);
      tickets_.erase(lease->request_id);
      at = leases_.erase(at);
    }
  }
  for (const std::shared_ptr<Lease>& lease : over) finish(lease);
  for (const TierJob& job : late) job.over(TierOutcome::cancelled);
}

void PeerServer::finish(const std::shared_ptr<Lease>& lease) {
  for (std::optional<TierJob>& job : lease->jobs)
    if (job) job->over(lease->was_served ? TierOutcome::done : TierOutcome::cancelled);
}

}  // namespace quire
