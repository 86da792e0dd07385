#pragma once
// The tier of an engine that is made of other servers: it asks them for the blocks that this one lacks, and gives them its own
// (runtime/remote/peer_cache.h). A tier as that of a store that servers share (remote_tier.h), but that nothing is stored there.
#include <memory>

#include "engine/tiers/remote_tier.h"
#include "quire/base/kv_layout.h"
#include "quire/engine_builder.h"
#include "runtime/remote/peer_shelf.h"

namespace quire {

// How long what is waited for, so that a request loses less than 2 s whatever the others do.
inline constexpr RemotePatience kPeerPatience{.answer_s = 0.2, .reply_s = 1.2, .block_s = 1.6};

// Errors name `kv_peers`, `kv_share` or `kv_key`: what is not as EngineBuilder::kv_peer_cache() asks for. Before anything is opened.
// `has_shelf`: there is something to give.
Result<void> check_peer_cache(const KvPeerCacheOptions& options, bool has_shelf);

// `shelf`: what is given where KvPeerCacheOptions::share is.
Result<std::shared_ptr<RemoteTier>> open_peer_cache(const KvPeerCacheOptions& options, const CoreConfig& config, const KvLayout& layout,
                                                    const TierFingerprint& fingerprint, std::shared_ptr<PeerShelf> shelf);

}  // namespace quire
