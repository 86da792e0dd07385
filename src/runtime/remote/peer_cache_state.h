#pragma once
// State of a lookup, a load and a peer of `PeerCache` (peer_cache.h). Only the files that define members of `PeerCache` include this
// header. After the store's thread has taken an object from the queues, only this thread uses it.
#include <deque>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "runtime/remote/peer_cache.h"
#include "runtime/remote/peer_client_connection.h"

namespace quire {

struct PeerCache::Lookup {
  std::vector<OffloadKey> names;
  std::function<bool()> is_wanted;
  std::function<void(const Answer&)> over;
  bool is_probe = false;  // asks for an empty offload key, to see whether any peer answers
  TimePoint until;
  std::vector<std::vector<bool>> has;  // by peer and offload key; empty if the peer has not answered
  std::size_t num_left = 0;            // frames that still need an answer
  bool has_awaited_answer = false, was_answered = false,
       is_over = false;  // `has_awaited_answer`: an answer was awaited; `was_answered`: by any peer
};

struct PeerCache::Load {
  TierJob job;
  TimePoint until;
};

struct PeerCache::Peer {
  Peer(const PeerCacheOptions& options, std::size_t which, std::uint64_t block_bytes)
      : index(which),
        name(options.peers[which].name()),
        asks(options.peers[which], options.fingerprint, kMaxPeerPayload),
        loads(options.peers[which], options.fingerprint, peer_block_payload(block_bytes)) {}

  // One frame of a lookup.
  struct FindRequest {
    std::shared_ptr<Lookup> question;
    std::size_t first = 0, count = 0;
    std::uint32_t number = 0;
    bool is_waited_for = true;
  };

  const std::size_t index;
  const std::string name;
  PeerClientConnection asks, loads;
  std::deque<FindRequest> finds;  // the first `num_sent` have been sent
  std::size_t num_sent = 0;
  std::deque<Load> jobs;  // the first `num_taken` have been requested
  std::size_t num_taken = 0;
  std::uint64_t queued_bytes = 0;
  std::uint32_t next_find = 0, next_take = 0, next_block = 0;  // sequence numbers, per connection
  TimePoint asks_deadline{}, loads_deadline{};                 // deadlines for the next answer
  TimePoint asks_last_used{}, loads_last_used{};
  double backoff_s = 0.0;           // 0: in use
  double last_backoff_s = 0.0;      // the next pause is twice as long; 0 after a valid answer or block
  bool has_sent_corrupted = false;  // the peer's last block did not verify
  TimePoint due{};                  // end of the pause
  bool is_self = false;

  [[nodiscard]] bool is_available(TimePoint now) const { return !is_self && (backoff_s == 0.0 || now >= due); }
};

}  // namespace quire
