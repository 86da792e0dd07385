// Blocks for and from another server, request by request. Made by the thread that makes the engine; then the engine's thread calls it. The
// threads of the side channel are the store's, and see neither this object nor the connector.
#include "engine/tiers/peer_tier.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <random>
#include <utility>

#include "core/connect/offload_connector.h"
#include "engine/tiers/kv_key.h"
#include "engine/tiers/tier_check.h"
#include "runtime/remote/remote_address.h"

namespace quire {
namespace {

constexpr double kLongestLease_s = 24.0 * 60.0 * 60.0;
// A load that gets nowhere is over after so long, whatever the fetcher says; a store is a lease, whose end the server says.
constexpr double kLoadPatience_s = 1.9, kLeasePatience_s = 10.0 * 365.0 * 24.0 * 60.0 * 60.0;
constexpr double kLastLease_s = 2.0;
constexpr std::uint32_t kMostPeerPlaces = std::uint32_t{1} << 22U;
constexpr std::size_t kMostOfPeerProblem = 200;

bool keeps_for_others(KvRole role) {
  return role == KvRole::producer || role == KvRole::both;
}
bool loads_of_others(KvRole role) {
  return role == KvRole::consumer || role == KvRole::both;
}

bool is_on_this_machine(const std::string& host) {
  RemoteAddress address;
  address.host = host;
  return address.is_local();
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
    return refuse("kv_host", fmt::format("'{}' tells consumers not where to come to", options.host),
                  "give the address of this machine under which they reach it");
  if (!(options.lease_s > 0.0 && options.lease_s <= kLongestLease_s))
    return refuse("kv_lease", fmt::format("{} s is no time to keep blocks", options.lease_s), "give seconds, a day at most");
  if (!options.key_file.empty()) {
    const auto key = read_kv_key(options.key_file, "kv_key");
    return key ? Result<void>() : std::unexpected(key.error());
  }
  if (!is_on_this_machine(options.host))
    return refuse("kv_key", fmt::format("{} can be reached by others, and there is no key", options.host),
                  "give a file of at least 16 random bytes, the same on all servers, or listen on 127.0.0.1");
  return {};
}

Result<std::shared_ptr<PeerTier>> PeerTier::open(const KvPeerOptions& options, const CoreConfig& config, const KvLayout& layout,
                                                 const TierFingerprint& fingerprint) {
  if (Result<void> checked = check_peer(options); !checked) return std::unexpected(std::move(checked.error()));
  if (Result<void> checked = check_tier(config, "kv_role"); !checked) return std::unexpected(std::move(checked.error()));
  if (layout.groups.size() != 1 || layout.groups[0].sliding_window() > 0)
    return fail(ErrorCode::unsupported, "kv_role",
                "the model has sliding windows or layers with states, whose blocks are not handed on yet",
                "serve it without, or a model of full attention alone");
  std::vector<std::byte> secret;
  if (!options.key_file.empty()) {
    auto key = read_kv_key(options.key_file, "kv_key");
    if (!key) return std::unexpected(std::move(key.error()));
    secret = *std::move(key);
  }
  const std::uint64_t block_bytes = layout.group_block_bytes(0);
  PeerConnectorOptions connector{.block_size = config.block_size,
                                 .block_bytes = static_cast<std::uint32_t>(block_bytes),
                                 .most_kept = std::max(1U, config.kv.num_blocks / 2),
                                 .engine_id = make_engine_id(),
                                 .host = options.host};
  std::unique_ptr<PeerServer> server;
  if (keeps_for_others(options.role)) {
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
  if (loads_of_others(options.role))
    fetcher = std::make_unique<PeerFetcher>(
        PeerFetcherOptions{.secret = std::move(secret), .fingerprint = fingerprint, .block_bytes = block_bytes});
  const std::uint32_t num_places = std::min(2 * config.kv.num_blocks, kMostPeerPlaces);
  auto store = std::make_shared<PeerStore>(std::move(server), std::move(fetcher), num_places, block_bytes);
  return std::shared_ptr<PeerTier>(new PeerTier(options.role, std::move(store), std::move(connector), kLoadPatience_s));
}

PeerTier::PeerTier(KvRole role, std::shared_ptr<PeerStore> store, PeerConnectorOptions options, double load_patience_s)
    : role_(role),
      store_(std::move(store)),
      transport_(store_, load_patience_s, true, kLeasePatience_s),
      connector_(*store_, transport_, std::move(options)) {}

bool PeerTier::tend(double /*compute_tokens_per_s*/) {
  connector_.renew(std::chrono::steady_clock::now());
  return false;
}

void PeerTier::decline(const KvTransferParams& params) {
  if (!params.do_remote_prefill || params.remote_block_ids.empty() || store_->fetcher() == nullptr) return;
  store_->fetcher()->release({.host = params.remote_host,
                              .port = params.remote_port,
                              .engine_id = params.remote_engine_id,
                              .request_id = params.remote_request_id});
}

void PeerTier::hurry() {
  if (store_->server() != nullptr) store_->server()->hurry(kLastLease_s);
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
    stats.num_refused_blocks = fetcher.num_refused;
    stats.num_failed_blocks = fetcher.num_failed;
    stats.problem = fetcher.problem.substr(0, kMostOfPeerProblem);
  }
  return stats;
}

}  // namespace quire
