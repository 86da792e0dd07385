#pragma once
// The tier of an engine that consists of other servers. The tier requests the blocks that this server does not have, and sends blocks of
// this server to the others (runtime/remote/peer_cache.h). The tier works like the tier of a shared store (remote_tier.h), except that it
// stores nothing on the other servers.
#include <memory>

#include "engine/tiers/remote_tier.h"
#include "quire/base/kv_layout.h"
#include "quire/engine_builder.h"
#include "runtime/remote/peer_block_source.h"

namespace quire {

// Time limits for the answer to a lookup, for a reply and for a block. With these limits a request loses less than 2 s, whatever the other
// servers do.
inline constexpr RemoteTimeouts kPeerTimeouts{.lookup_timeout_s = 0.2, .reply_s = 1.2, .block_s = 1.6};

// Checks the options before anything is opened. Errors name `kv_peers`, `kv_share` or `kv_key`: an option does not meet the requirements of
// EngineBuilder::kv_peer_cache(). `has_block_source`: this server has blocks to share.
Result<void> check_peer_cache(const KvPeerCacheOptions& options, bool has_block_source);

// Opens the tier. `block_source`: the blocks that this server shares if KvPeerCacheOptions::share is set. Tests pass other timeouts.
Result<std::shared_ptr<RemoteTier>> open_peer_cache(const KvPeerCacheOptions& options, const CoreConfig& config, const KvLayout& layout,
                                                    const TierFingerprint& fingerprint, std::shared_ptr<PeerBlockSource> block_source,
                                                    const RemoteTimeouts& timeouts = kPeerTimeouts);

}  // namespace quire
