#pragma once
// A server that lends blocks under leases, with counters of its copies.
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "runtime/remote/peer_server.h"
#include "runtime/tier/tier_support.h"

namespace quire::test {

inline constexpr std::uint32_t kLeaseBlock = 1000;

struct LeaseServer {
  explicit LeaseServer(double lease_s = 600.0, double timeout_s = 60.0)
      : server(PeerServer::open({.host = "127.0.0.1",
                                 .port = 0,
                                 .secret = std::vector(16, std::byte{1}),
                                 .fingerprint = tier_fingerprint(7),
                                 .engine_id = "lender",
                                 .lease_s = lease_s,
                                 .timeout_s = timeout_s,
                                 .handshake_s = 60.0})
                   .value()) {}
  void lend(std::uint64_t ticket, std::uint32_t num_blocks) {
    std::vector<PeerServer::Block> blocks;
    for (std::uint32_t i = 0; i < num_blocks; ++i)
      blocks.push_back({.name = tier_name(i), .bytes = kLeaseBlock, .copy = [this, i](std::span<std::byte> bytes) {
                          ++num_promised_copies;
                          std::ranges::copy(tier_block(i, kLeaseBlock), bytes.begin());
                          return true;
                        }});
    server->open_lease(ticket, "request" + std::to_string(ticket), std::move(blocks));
  }
  void keep(std::uint64_t ticket, std::uint32_t index, TierOutcome& outcome, std::atomic<int>& num_over, bool copies = true) {
    server->keep(ticket, index,
                 {.verb = TierJob::Verb::store,
                  .place = 0,
                  .name = tier_name(index),
                  .bytes = kLeaseBlock,
                  .copy =
                      [this, index, copies](std::span<std::byte> bytes) {
                        ++num_kept_copies;
                        std::ranges::copy(tier_block(index, kLeaseBlock), bytes.begin());
                        return copies;
                      },
                  .over =
                      [&](TierOutcome one) {
                        outcome = one;
                        ++num_over;
                      }});
  }
  [[nodiscard]] bool comes_to_leases(std::uint32_t count) const {
    return comes_true([&] { return server->stats().num_open_leases == count; });
  }
  std::atomic<int> num_promised_copies = 0, num_kept_copies = 0;
  std::unique_ptr<PeerServer> server;
};

}  // namespace quire::test
