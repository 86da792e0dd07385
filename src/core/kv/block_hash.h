#pragma once
// The name of a full block: its tokens, everything before them (through the parent's name), and the extra keys. Equal names mean equal
// keys and values, so names must not collide: 32 bytes of SHA-256.
#include <array>
#include <cstdint>
#include <cstring>
#include <span>
#include <string_view>
#include <vector>

#include "base/digest.h"
#include "core/kv/extra_keys.h"
#include "quire/ids.h"

namespace quire {

struct BlockHash {
  std::array<std::uint8_t, 32> bytes{};

  friend bool operator==(const BlockHash&, const BlockHash&) = default;

  [[nodiscard]] std::uint64_t prefix() const {
    std::uint64_t value = 0;
    std::memcpy(&value, bytes.data(), sizeof value);
    return value;
  }
};

// One full block of a request, as the hash sees it.
struct BlockContent {
  std::span<const TokenId> tokens;
  std::uint32_t start = 0;                      // position of tokens[0] in the request
  std::string_view lora_name;                   // empty: none
  std::span<const MultimodalRange> multimodal;  // those that overlap this block
  std::string_view cache_salt;                  // empty but in the first block
};

// The content of the block at [start, start + num_tokens) of a request; views into both arguments.
BlockContent block_content(std::span<const TokenId> tokens, const ExtraKeys& extra, std::uint32_t start, std::uint32_t num_tokens);

// The hasher of the first scheduler; hash_function.h is what the exact core uses, and this goes with its last user.
class BlockHasher {
 public:
  virtual ~BlockHasher() = default;
  // The parent of every first block.
  virtual BlockHash root() = 0;
  virtual BlockHash hash(const BlockHash& parent, const BlockContent& content) = 0;
};

// SHA-256 over a canonical encoding in which every field has a tag and a length, so that no two contents share their bytes.
class Sha256BlockHasher final : public BlockHasher {
 public:
  explicit Sha256BlockHasher(std::string_view seed);

  BlockHash root() override { return root_; }
  BlockHash hash(const BlockHash& parent, const BlockContent& content) override;

 private:
  enum class Tag : std::uint8_t { root = 1, tokens = 2, lora = 3, multimodal = 4, salt = 5 };

  void put(Tag tag, std::string_view text);
  void put(Tag tag, const MultimodalRange& range, std::uint32_t start);
  void put_u32(std::uint32_t value);
  void put_bytes(const void* data, std::size_t size);
  BlockHash finish();

  Sha256 sha_;
  std::vector<std::byte> buffer_;
  BlockHash root_;
};

}  // namespace quire
