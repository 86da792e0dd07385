// Other servers' caches as a tier. Made by the thread that makes the engine: what was written is read, this server's blocks are offered,
// and a tier as any store's is opened over the others. Nothing here runs later. All of it may be wrong through what a user wrote, so all of
// it ends in errors that name the flag.
#include "engine/tiers/peer_cache_tier.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <random>
#include <utility>

#include "engine/tiers/kv_key.h"
#include "engine/tiers/tier_check.h"
#include "runtime/remote/peer_cache.h"

namespace quire {
namespace {

constexpr std::size_t kMostPeers = 16;
constexpr std::uint32_t kLeastNames = 1024, kMostNames = std::uint32_t{1} << 20U;

std::unexpected<Error> refuse_peers(const char* field, std::string problem, const char* remedy) {
  return fail(ErrorCode::invalid_argument, field, std::move(problem), remedy);
}

// host:port, [IPv6]:port; port 0, which is a free one, only of one's own.
Result<RemoteAddress> parse_peer(const std::string& text, const char* field) {
  constexpr const char* kRemedy = "give HOST:PORT, or [IPv6]:PORT";
  RemoteAddress address;
  const std::size_t colon = text.rfind(':');
  if (colon == std::string::npos || colon == 0) return refuse_peers(field, fmt::format("'{}' has no host and port", text), kRemedy);
  address.host = text.substr(0, colon);
  const bool is_bracketed = address.host.size() > 2 && address.host.starts_with('[') && address.host.ends_with(']');
  if (is_bracketed) address.host = address.host.substr(1, address.host.size() - 2);
  if (!is_bracketed && address.host.find_first_of(":[]") != std::string::npos)
    return refuse_peers(field, fmt::format("'{}' is no address", text), kRemedy);
  const char* const begin = text.data() + colon + 1;
  const char* const end = text.data() + text.size();
  const auto [stop, error] = std::from_chars(begin, end, address.port);
  const bool is_own = std::string_view(field) == "kv_share";
  if (begin == end || error != std::errc() || stop != end || (address.port == 0 && !is_own))
    return refuse_peers(field, fmt::format("'{}' has no port from 1 to 65535", text), kRemedy);
  return address;
}

struct PeerCacheNames {
  std::vector<RemoteAddress> peers;
  RemoteAddress share;
  std::vector<std::byte> secret;
};

Result<PeerCacheNames> read_names(const KvPeerCacheOptions& options, bool has_shelf) {
  PeerCacheNames names;
  if (options.peers.size() > kMostPeers)
    return refuse_peers("kv_peers", fmt::format("{} servers are too many", options.peers.size()),
                        "give 16 at most; each request asks all of them");
  bool is_local = true;
  names.peers.reserve(options.peers.size());
  for (const std::string& peer : options.peers) {
    Result<RemoteAddress> address = parse_peer(peer, "kv_peers");
    if (!address) return std::unexpected(std::move(address.error()));
    is_local = is_local && address->is_local();
    names.peers.push_back(*std::move(address));
  }
  if (!options.share.empty()) {
    if (!has_shelf)
      return refuse_peers("kv_share", "there is nothing to give: others are given what host memory below the KV cache holds",
                          "add --kv-dram, or leave it out and only ask others");
    Result<RemoteAddress> address = parse_peer(options.share, "kv_share");
    if (!address) return std::unexpected(std::move(address.error()));
    is_local = is_local && address->is_local();
    names.share = *std::move(address);
  }
  if (!options.key_file.empty()) {
    auto key = read_kv_key(options.key_file, "kv_key");
    if (!key) return std::unexpected(std::move(key.error()));
    names.secret = *std::move(key);
  } else if (!is_local) {
    return refuse_peers("kv_key", "others than this machine are asked, or can ask, and there is no key",
                        "give a file of at least 16 random bytes, the same on all servers, or use 127.0.0.1");
  }
  return names;
}

std::string make_name() {
  std::random_device random;
  return fmt::format("{:08x}{:08x}{:08x}{:08x}", random(), random(), random(), random());
}

}  // namespace

Result<void> check_peer_cache(const KvPeerCacheOptions& options, bool has_shelf) {
  const auto names = read_names(options, has_shelf);
  return names ? Result<void>() : std::unexpected(names.error());
}

Result<std::shared_ptr<RemoteTier>> open_peer_cache(const KvPeerCacheOptions& options, const CoreConfig& config, const KvLayout& layout,
                                                    const TierFingerprint& fingerprint, std::shared_ptr<PeerShelf> shelf) {
  if (Result<void> checked = check_tier(config, options.peers.empty() ? "kv_share" : "kv_peers"); !checked)
    return std::unexpected(std::move(checked.error()));
  auto names = read_names(options, shelf != nullptr);
  if (!names) return std::unexpected(std::move(names.error()));
  const std::string engine_id = make_name();
  std::unique_ptr<PeerServer> server;
  if (!options.share.empty()) {
    auto opened = PeerServer::open({.host = names->share.host,
                                    .port = names->share.port,
                                    .secret = names->secret,
                                    .fingerprint = fingerprint,
                                    .engine_id = engine_id,
                                    .shelf = std::move(shelf)});
    if (!opened) {
      opened.error().field = "kv_share";
      return std::unexpected(std::move(opened.error()));
    }
    server = *std::move(opened);
  }
  std::vector<std::uint64_t> group_bytes = group_block_bytes(layout);
  const std::uint64_t block_bytes = std::ranges::max(group_bytes);
  auto store = std::make_shared<PeerCache>(PeerCacheOptions{.peers = std::move(names->peers),
                                                            .secret = std::move(names->secret),
                                                            .fingerprint = fingerprint,
                                                            .engine_id = engine_id,
                                                            .num_places = std::clamp(4 * config.kv.num_blocks, kLeastNames, kMostNames),
                                                            .group_bytes = std::move(group_bytes),
                                                            .patience_s = kPeerPatience.reply_s},
                                           std::move(server));
  return RemoteTier::open_on(std::move(store),
                             {.name = "peer_cache",
                              .policy = options.policy,
                              .join_loads = options.join_loads,
                              .place_bytes = block_bytes,
                              .patience = kPeerPatience},
                             config);
}

}  // namespace quire
