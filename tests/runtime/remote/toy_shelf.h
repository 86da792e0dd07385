#pragma once
// Blocks in a map by key, and a server that shares them.
#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "runtime/remote/peer_block_source.h"
#include "runtime/remote/peer_server.h"
#include "runtime/tier/tier_support.h"

namespace quire::test {

inline constexpr std::uint64_t kCacheBlock = 9000;

// Returns the block size. There are three groups like in tier_name(), and blocks of the last group are smaller.
inline std::uint64_t shelf_bytes_of(std::uint64_t number) {
  return number % 3 == 2 ? kCacheBlock / 2 : kCacheBlock;
}

class ToyShelf final : public PeerBlockSource {
 public:
  void put(std::uint64_t number, std::uint64_t content) {
    const std::lock_guard lock(mutex_);
    blocks_[tier_name(number).prefix()] = tier_block(content, shelf_bytes_of(number));
  }
  void put(std::uint64_t number) { put(number, number); }
  void remove(std::uint64_t number) {
    const std::lock_guard lock(mutex_);
    blocks_.erase(tier_name(number).prefix());
  }
  [[nodiscard]] std::uint32_t block_bytes(std::uint32_t group) const override {
    return group < 3 ? static_cast<std::uint32_t>(shelf_bytes_of(group)) : 0;
  }
  [[nodiscard]] bool holds(const OffloadKey& name) const override {
    const std::lock_guard lock(mutex_);
    return blocks_.contains(name.prefix());
  }
  bool read(const OffloadKey& name, std::span<std::byte> bytes) override {
    const std::lock_guard lock(mutex_);
    const auto found = blocks_.find(name.prefix());
    if (found == blocks_.end()) return false;
    std::ranges::copy(found->second, bytes.begin());
    return true;
  }

 private:
  mutable std::mutex mutex_;
  std::map<std::uint64_t, std::vector<std::byte>> blocks_;
};

struct Holder {
  explicit Holder(std::uint8_t key = 1, std::uint8_t fingerprint = 7, std::uint16_t port = 0, const std::string& engine_id = "holder")
      : server(PeerServer::open({.host = "127.0.0.1",
                                 .port = port,
                                 .secret = std::vector(16, std::byte{key}),
                                 .fingerprint = tier_fingerprint(fingerprint),
                                 .engine_id = engine_id,
                                 .block_source = shelf})
                   .value()) {}
  std::shared_ptr<ToyShelf> shelf = std::make_shared<ToyShelf>();
  std::unique_ptr<PeerServer> server;
};

}  // namespace quire::test
