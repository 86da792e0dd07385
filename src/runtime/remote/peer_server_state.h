#pragma once
// What the server of blocks (peer_server.h) keeps of a lease and of a connection: for the files that define its members, and nobody else.
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
  std::vector<Block> blocks;                 // never changed
  std::vector<std::optional<TierJob>> jobs;  // of those that are kept
  std::uint32_t num_kept = 0;
  bool is_over = false;
  std::mutex copying;  // held while a block is copied; before the server's
  // A job's outcome: some of it was sent, or nobody came.
  bool was_served = false;
};

struct PeerServer::Client {
  explicit Client(int descriptor) : link(std::make_unique<NetStream>(descriptor), kMostPeerNamesPayload) {}
  PeerLink link;
  PeerSession session;
  TimePoint until;
  std::shared_ptr<Lease> lease;  // blocks of it are being sent
  std::uint32_t next_block = 0, end_block = 0;
  std::vector<OffloadKey> taken;  // blocks of the shelf that are being sent, from next_taken on
  std::size_t next_taken = 0;
  std::uint32_t taken_number = 0;  // of the first
  bool takes_names = false;        // it has asked by name, with the right key: it may be silent for longer
  bool is_greeted = false, is_ending = false;
  [[nodiscard]] bool is_taking() const { return next_taken < taken.size(); }
  bool has_more = false;  // its turn was over before all that it asked for was sent
};

}  // namespace quire
