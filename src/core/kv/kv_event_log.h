#pragma once
// KV events as they are made, until someone takes them. While disabled every call does nothing.
#include <cstdint>
#include <span>
#include <vector>

#include "base/check.h"
#include "core/kv/hash/hash_input.h"
#include "core/kv/hash/hash_list.h"
#include "core/kv/prefix_index.h"
#include "quire/base/ids.h"
#include "quire/base/kv_events.h"
#include "quire/hash_function.h"

namespace quire {

// Some blocks of a sequence have become findable in one go.
struct StoredBlocks {
  std::span<const BlockId> blocks;  // blocks[i] is block first_block + i of the sequence; null blocks are not named
  BlockHashList names;              // of the sequence, from its start
  std::uint32_t first_block = 0;
  std::uint32_t block_size = 0;  // tokens
  std::uint32_t group = 0;
  const RequestContent& content;
  std::int64_t lora_id = 0;  // reported where the content names an adapter
};

// Filled by pool and managers in the order in which things happen, taken with each outcome. Where events are on and nobody takes outcomes
// it grows.
class KvEventLog {
 public:
  KvEventLog(bool enabled, std::uint32_t hash_bytes) : enabled_(enabled), hash_bytes_(hash_bytes) {
    QUIRE_CHECK(hash_bytes <= sizeof(BlockHash::bytes), "a hash has so many bytes");
  }

  [[nodiscard]] bool enabled() const { return enabled_; }
  // The meaningful bytes of the hashes, one after the other.
  [[nodiscard]] std::vector<std::uint8_t> bytes_of(std::span<const BlockHash> hashes) const;

  void stored(const StoredBlocks& stored);
  void removed(const BlockName& name);
  void cleared();

  // Moves everything to the end of `out`.
  void take(std::vector<KvEvent>& out);

  // For checkpoints (schedule/checkpoint/state_form.h): without a name for each member it does not compile.
  template <class Form, class Self>
  static void fields(Form& form, Self& self) {
    [[maybe_unused]] auto& [enabled, hash_bytes, events] = self;
    form(events);
  }

 private:
  bool enabled_;
  std::uint32_t hash_bytes_;
  std::vector<KvEvent> events_;  // oldest first
};

}  // namespace quire
