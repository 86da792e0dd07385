// Sends blocks to other servers and loads blocks from them, by request. Created by the thread that builds the engine, then used on the
// engine thread. The threads of the side channel belong to the store. The only code of this file that they run is the functions that copy
// kept blocks.
#include "engine/tiers/peer_tier.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <random>
#include <utility>

#include "core/connect/offload_connector.h"
#include "engine/tiers/kv_key.h"
#include "engine/tiers/peer_address.h"
#include "engine/tiers/tier_check.h"
#include "runtime/remote/remote_address.h"

namespace quire {
namespace {

constexpr double kLongestLease_s = 24.0 * 60.0 * 60.0;
// Times without progress after which a load fails even if the fetcher does not end it, and after which a store fails. A store is a lease
// that the server ends, so its limit is practically infinite.
constexpr double kLoadTimeout_s = 1.9, kLeasePatience_s = 10.0 * 365.0 * 24.0 * 60.0 * 60.0;
constexpr double kLastLease_s = 2.0;
constexpr std::uint32_t kMaxPeerSlots = std::uint32_t{1} << 22U;
constexpr std::size_t kMaxPeerProblemBytes = 200;
constexpr std::size_t kMostProducers = 1024;
constexpr std::uint16_t kAnyPort = 0;

bool is_producer_role(KvRole role) {
  return role == KvRole::producer || role == KvRole::both;
}
bool is_consumer_role(KvRole role) {
  return role == KvRole::consumer || role == KvRole::both;
}

bool is_on_this_machine(const std::string& host) {
  RemoteAddress address;
  address.host = host;
  return address.is_local();
}

// Returns the producers. Sets `are_local` to false if one of them is on another machine. Errors name `kv_producers`.
Result<PeerTier::Producers> read_producers(const KvPeerOptions& options, bool& are_local) {
  PeerTier::Producers producers;
  if (options.producers.size() > kMostProducers)
    return fail(ErrorCode::invalid_argument, "kv_producers", fmt::format("has {} servers", options.producers.size()),
                fmt::format("use at most {}", kMostProducers));
  for (const std::string& text : options.producers) {
    const bool has_port = text.empty() || (text.find(':') != std::string::npos && !text.ends_with(']'));
    const auto address = parse_peer_address(has_port ? text : text + ":0", "kv_producers", !has_port);
    if (!address) return std::unexpected(address.error());
    are_local = are_local && address->is_local();
    producers.emplace(canonical_host(address->host), address->port);
  }
  return producers;
}

std::string make_engine_id() {
  std::random_device random;
  return fmt::format("{:08x}{:08x}{:08x}{:08x}", random(), random(), random(), random());
}

}  // namespace

Result<void> check_peer(const KvPeerOptions& options) {
  const auto refuse = [](const char* field, std::string problem, const char* remedy) {
    return fail(ErrorCode::invalid_argument, field, std::move(problem), remedy);
  };
  if (options.host.empty() || options.host == "0.0.0.0" || options.host == "::" || options.host == "*")
    return refuse("kv_host", fmt::format("'{}' is not an address that consumers can connect to", options.host),
                  "use the address at which consumers reach this machine");
  if (!(options.lease_s > 0.0 && options.lease_s <= kLongestLease_s))
    return refuse("kv_lease", fmt::format("{} s is out of range", options.lease_s), "use more than 0 s and at most one day");
  bool are_local = true;
  if (const auto producers = read_producers(options, are_local); !producers) return std::unexpected(producers.error());
  if (!options.producers.empty() && !is_consumer_role(options.role))
    return refuse("kv_producers", "is set, but this server does not load blocks from producers",
                  "add --kv-role consumer or --kv-role both, or leave it out");
  if (!options.key_file.empty()) {
    const auto key = read_kv_key(options.key_file, "kv_key");
    return key ? Result<void>() : std::unexpected(key.error());
  }
  if (!are_local)
    return refuse("kv_key", "is required, because a server of --kv-producers is on another machine",
                  "use a file of at least 16 random bytes, the same on all servers");
  if (!is_on_this_machine(options.host))
    return refuse("kv_key", fmt::format("is required, because {} can be reached from other machines", options.host),
                  "use a file of at least 16 random bytes, the same on all servers, or listen on 127.0.0.1");
  return {};
}

Result<std::shared_ptr<PeerTier>> PeerTier::open(const KvPeerOptions& options, const CoreConfig& config, const KvLayout& layout,
                                                 const TierFingerprint& fingerprint) {
  if (Result<void> checked = check_peer(options); !checked) return std::unexpected(std::move(checked.error()));
  if (Result<void> checked = check_tier(config, "kv_role"); !checked) return std::unexpected(std::move(checked.error()));
  if (layout.groups.size() != 1 || layout.groups[0].sliding_window() > 0)
    return fail(ErrorCode::unsupported, "kv_role",
                "the model has sliding windows or layers with states, whose blocks cannot be transferred yet",
                "leave it out, or serve a model with full attention in all layers");
  std::vector<std::byte> secret;
  if (!options.key_file.empty()) {
    auto key = read_kv_key(options.key_file, "kv_key");
    if (!key) return std::unexpected(std::move(key.error()));
    secret = *std::move(key);
  }
  const std::uint64_t block_bytes = layout.group_block_bytes(0);
  PeerConnectorOptions connector{.block_size = config.block_size,
                                 .block_bytes = static_cast<std::uint32_t>(block_bytes),
                                 .max_kept_blocks = std::max(1U, config.kv.num_blocks / 2),
                                 .engine_id = make_engine_id(),
                                 .host = options.host};
  std::unique_ptr<PeerServer> server;
  if (is_producer_role(options.role)) {
    auto opened = PeerServer::open({.host = options.host,
                                    .port = options.port,
                                    .secret = secret,
                                    .fingerprint = fingerprint,
                                    .engine_id = connector.engine_id,
                                    .lease_s = options.lease_s});
    if (!opened) return std::unexpected(std::move(opened.error()));
    server = *std::move(opened);
    connector.port = server->port();
  }
  std::unique_ptr<PeerFetcher> fetcher;
  if (is_consumer_role(options.role))
    fetcher = std::make_unique<PeerFetcher>(
        PeerFetcherOptions{.secret = std::move(secret), .fingerprint = fingerprint, .block_bytes = block_bytes});
  const std::uint32_t num_places = std::min(2 * config.kv.num_blocks, kMaxPeerSlots);
  auto store = std::make_shared<PeerStore>(std::move(server), std::move(fetcher), num_places, block_bytes);
  bool are_local = true;
  auto producers = read_producers(options, are_local);
  if (!producers) return std::unexpected(std::move(producers.error()));
  return std::shared_ptr<PeerTier>(
      new PeerTier(options.role, *std::move(producers), std::move(store), std::move(connector), kLoadTimeout_s));
}

PeerTier::PeerTier(KvRole role, Producers producers, std::shared_ptr<PeerStore> store, PeerConnectorOptions options, double load_patience_s)
    : role_(role),
      producers_(std::move(producers)),
      store_(std::move(store)),
      transport_(store_, load_patience_s, true, kLeasePatience_s),
      connector_(*store_, transport_, std::move(options)) {}

bool PeerTier::maintain(double /*compute_tokens_per_s*/) {
  connector_.renew(std::chrono::steady_clock::now());
  return false;
}

Result<void> PeerTier::check(const KvTransferParams& params) const {
  if (!params.do_remote_prefill || (params.remote_host.empty() && params.remote_port == 0)) return {};
  const std::string host = canonical_host(params.remote_host);
  if (producers_.contains({host, params.remote_port}) || producers_.contains({host, kAnyPort})) return {};
  return fail(
      ErrorCode::invalid_argument, "kv_transfer_params.remote_host",
      fmt::format("'{}' with remote_port {} is not a producer of this server", params.remote_host, params.remote_port),
      "send the values from a producer's answer; the operator of this server must list its producers with --kv-producers HOST:PORT");
}

void PeerTier::decline(const KvTransferParams& params) {
  if (!params.do_remote_prefill || params.remote_block_ids.empty() || store_->fetcher() == nullptr || !check(params)) return;
  store_->fetcher()->release({.host = params.remote_host,
                              .port = params.remote_port,
                              .engine_id = params.remote_engine_id,
                              .request_id = params.remote_request_id});
}

void PeerTier::expire_leases() {
  if (store_->server() != nullptr) store_->server()->expire_leases(kLastLease_s);
}

KvTierStats PeerTier::stats() const {
  KvTierStats stats{.name = "peer", .place_bytes = store_->block_bytes(), .tokens_loaded = connector_.num_loaded_tokens()};
  if (store_->server() != nullptr) {
    const PeerServerStats server = store_->server()->stats();
    stats.num_stored_blocks = server.num_sent;
    stats.bytes_stored = server.bytes_sent;
    stats.num_open_leases = server.num_open_leases;
    stats.num_leases = server.num_leases;
    stats.num_expired_leases = server.num_expired_leases;
  }
  if (store_->fetcher() != nullptr) {
    const PeerFetcherStats fetcher = store_->fetcher()->stats();
    stats.num_loaded_blocks = fetcher.num_loaded;
    stats.bytes_loaded = fetcher.bytes_loaded;
    stats.num_corrupted_blocks = fetcher.num_refused;
    stats.num_failed_blocks = fetcher.num_failed;
    stats.problem = fetcher.problem.substr(0, kMaxPeerProblemBytes);
  }
  return stats;
}

}  // namespace quire
