#pragma once
// State of a lease and a connection of `PeerServer` (peer_server.h). Only the files that define members of `PeerServer` include this
// header.
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "runtime/remote/peer_server.h"

namespace quire {

struct PeerServer::Lease {
  std::uint64_t ticket = 0;
  std::string request_id;
  TimePoint until;
  std::vector<Block> blocks;                 // constant
  std::vector<std::optional<TierJob>> jobs;  // jobs from keep(), by block
  std::uint32_t num_kept = 0;
  bool is_over = false;
  std::mutex copying;  // held while a block is copied; locked before `mutex_` of the server
  // True after a block was sent, or after the consumer has reported that it needs no more blocks. The jobs of keep() then end with
  // TierOutcome::done, otherwise with cancelled.
  bool was_served = false;
};

struct PeerServer::Client {
  explicit Client(int descriptor) : link(std::make_unique<NetStream>(descriptor), kMaxPeerKeysPayload) {}
  PeerFrameStream link;
  PeerSession session;
  TimePoint until;
  std::shared_ptr<Lease> lease;  // lease whose blocks are being sent
  std::uint32_t next_block = 0, end_block = 0;
  std::vector<OffloadKey> taken;  // blocks of the `PeerBlockSource` to send, from `next_taken` on
  std::size_t next_taken = 0;
  std::uint32_t first_sequence_number = 0;  // sequence number of the first block
  bool is_block_client = false;             // has made a verified request by offload key; may be idle for longer
  bool is_greeted = false, is_ending = false;
  bool is_verified = false;  // has proved that it knows the secret
  [[nodiscard]] bool is_sending_requested() const { return next_taken < taken.size(); }
  bool has_more = false;  // the turn ended before all requested blocks were sent
};

}  // namespace quire
