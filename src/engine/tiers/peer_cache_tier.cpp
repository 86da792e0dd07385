// Opens the caches of other servers as a tier: reads the options, offers this server's blocks, and opens a tier over the other servers, as
// over any shared store. Used by the thread that builds the engine, before the engine runs. User input may be invalid, so every failure
// returns an error that names the flag.
#include "engine/tiers/peer_cache_tier.h"

#include <fmt/format.h>

#include <algorithm>
#include <random>
#include <utility>

#include "engine/tiers/kv_key.h"
#include "engine/tiers/peer_address.h"
#include "engine/tiers/tier_check.h"
#include "runtime/remote/peer_cache.h"

namespace quire {
namespace {

constexpr std::size_t kMostPeers = 16;
constexpr std::uint32_t kMinTrackedHashes = 1024, kMaxTrackedHashes = std::uint32_t{1} << 20U;

std::unexpected<Error> refuse_peers(const char* field, std::string problem, const char* remedy) {
  return fail(ErrorCode::invalid_argument, field, std::move(problem), remedy);
}

struct PeerCacheAddresses {
  std::vector<RemoteAddress> peers;
  RemoteAddress share;
  std::vector<std::byte> secret;
};

Result<PeerCacheAddresses> read_addresses(const KvPeerCacheOptions& options, bool has_block_source) {
  PeerCacheAddresses addresses;
  if (options.peers.size() > kMostPeers)
    return refuse_peers("kv_peers", fmt::format("{} servers are set, but at most 16 are allowed", options.peers.size()),
                        "use fewer servers; each request queries all of them");
  bool is_local = true;
  addresses.peers.reserve(options.peers.size());
  for (const std::string& peer : options.peers) {
    Result<RemoteAddress> address = parse_peer_address(peer, "kv_peers");
    if (!address) return std::unexpected(std::move(address.error()));
    is_local = is_local && address->is_local();
    addresses.peers.push_back(*std::move(address));
  }
  if (!options.share.empty()) {
    if (!has_block_source)
      return refuse_peers("kv_share", "is set, but this server has no tier in host memory to share",
                          "add --kv-dram to share blocks, or leave it out to load blocks only");
    Result<RemoteAddress> address = parse_peer_address(options.share, "kv_share", true);
    if (!address) return std::unexpected(std::move(address.error()));
    is_local = is_local && address->is_local();
    addresses.share = *std::move(address);
  }
  if (!options.key_file.empty()) {
    auto key = read_kv_key(options.key_file, "kv_key");
    if (!key) return std::unexpected(std::move(key.error()));
    addresses.secret = *std::move(key);
  } else if (!is_local) {
    return refuse_peers("kv_key", "is required, because servers on other machines are queried or can query this one",
                        "use a file of at least 16 random bytes, the same on all servers, or use 127.0.0.1");
  }
  return addresses;
}

std::string make_name() {
  std::random_device random;
  return fmt::format("{:08x}{:08x}{:08x}{:08x}", random(), random(), random(), random());
}

}  // namespace

Result<void> check_peer_cache(const KvPeerCacheOptions& options, bool has_block_source) {
  const auto addresses = read_addresses(options, has_block_source);
  return addresses ? Result<void>() : std::unexpected(addresses.error());
}

Result<std::shared_ptr<RemoteTier>> open_peer_cache(const KvPeerCacheOptions& options, const CoreConfig& config, const KvLayout& layout,
                                                    const TierFingerprint& fingerprint, std::shared_ptr<PeerBlockSource> block_source,
                                                    const RemoteTimeouts& timeouts) {
  if (Result<void> checked = check_tier(config, options.peers.empty() ? "kv_share" : "kv_peers"); !checked)
    return std::unexpected(std::move(checked.error()));
  auto addresses = read_addresses(options, block_source != nullptr);
  if (!addresses) return std::unexpected(std::move(addresses.error()));
  const std::string engine_id = make_name();
  std::unique_ptr<PeerServer> server;
  if (!options.share.empty()) {
    auto opened = PeerServer::open({.host = addresses->share.host,
                                    .port = addresses->share.port,
                                    .secret = addresses->secret,
                                    .fingerprint = fingerprint,
                                    .engine_id = engine_id,
                                    .block_source = std::move(block_source)});
    if (!opened) {
      opened.error().field = "kv_share";
      return std::unexpected(std::move(opened.error()));
    }
    server = *std::move(opened);
  }
  std::vector<std::uint64_t> group_bytes = group_block_bytes(layout);
  const std::uint64_t block_bytes = std::ranges::max(group_bytes);
  auto store =
      std::make_shared<PeerCache>(PeerCacheOptions{.peers = std::move(addresses->peers),
                                                   .secret = std::move(addresses->secret),
                                                   .fingerprint = fingerprint,
                                                   .engine_id = engine_id,
                                                   .num_places = std::clamp(4 * config.kv.num_blocks, kMinTrackedHashes, kMaxTrackedHashes),
                                                   .group_bytes = std::move(group_bytes),
                                                   .timeout_s = timeouts.reply_s},
                                  std::move(server));
  return RemoteTier::open_on(std::move(store),
                             {.name = "peer_cache",
                              .policy = options.policy,
                              .join_loads = options.join_loads,
                              .place_bytes = block_bytes,
                              .timeouts = timeouts,
                              .holds_blocks = false},
                             config);
}

}  // namespace quire
