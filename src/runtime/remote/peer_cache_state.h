#pragma once
// What the store of other servers' blocks (peer_cache.h) keeps of a question, a load and a peer: for the files that define its members, and
// nobody else. All of it is its thread's once it has been taken up.
#include <deque>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "runtime/remote/peer_cache.h"
#include "runtime/remote/peer_line.h"

namespace quire {

struct PeerCache::Question {
  std::vector<OffloadKey> names;
  std::function<bool()> is_wanted;
  std::function<void(const Answer&)> over;
  bool is_trial = false;  // of nobody's name: whether anybody is there
  TimePoint until;
  std::vector<std::vector<bool>> has;                             // by peer; empty: it has said nothing
  std::size_t num_left = 0;                                       // frames that are waited for
  bool was_asked = false, was_answered = false, is_over = false;  // of somebody who is waited for; by anybody
};

struct PeerCache::Load {
  TierJob job;
  TimePoint until;
};

struct PeerCache::Peer {
  Peer(const PeerCacheOptions& options, std::size_t which, std::uint64_t block_bytes)
      : index(which),
        name(options.peers[which].name()),
        asks(options.peers[which], options.fingerprint, kMostPeerPayload),
        loads(options.peers[which], options.fingerprint, peer_block_payload(block_bytes)) {}

  // Part of a question: a frame.
  struct Find {
    std::shared_ptr<Question> question;
    std::size_t first = 0, count = 0;
    std::uint32_t number = 0;
    bool is_waited_for = true;
  };

  const std::size_t index;
  const std::string name;
  PeerLine asks, loads;
  std::deque<Find> finds;  // the first num_sent of them were sent
  std::size_t num_sent = 0;
  std::deque<Load> jobs;  // the first num_taken of them were asked for
  std::size_t num_taken = 0;
  std::uint64_t queued_bytes = 0;
  std::uint32_t next_find = 0, next_take = 0, next_block = 0;  // numbers; each line's own
  TimePoint asks_until{}, loads_until{};                       // something must have come by then, of what was sent
  TimePoint asks_used{}, loads_used{};
  double pause_s = 0.0;  // 0: in use
  TimePoint due{};       // paused: until then
  bool is_self = false;

  [[nodiscard]] bool may_be_asked(TimePoint now) const { return !is_self && (pause_s == 0.0 || now >= due); }
};

}  // namespace quire
