#pragma once
// Collects KV events until a caller takes them. While disabled, removed() and cleared() do nothing, and stored() must not be called.
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

// The blocks of a sequence that got their hashes in one call.
struct StoredBlocks {
  std::span<const BlockId> blocks;  // blocks[i] is block first_block + i of the sequence; null blocks have no hash
  BlockHashList names;              // block hashes of the sequence, from its first block on
  std::uint32_t first_block = 0;
  std::uint32_t block_size = 0;  // in tokens
  std::uint32_t group = 0;
  const RequestContent& content;
  std::int64_t lora_id = 0;  // reported if the content has a LoRA adapter
};

// The pool and the managers append events in order of occurrence; each StepOutcome takes them. The log grows without limit if events are
// enabled and no caller takes them.
class KvEventLog {
 public:
  KvEventLog(bool enabled, std::uint32_t hash_bytes) : enabled_(enabled), hash_bytes_(hash_bytes) {
    QUIRE_CHECK(hash_bytes <= sizeof(BlockHash::bytes), "a block hash has at most 32 bytes");
  }

  [[nodiscard]] bool enabled() const { return enabled_; }
  // Returns the meaningful bytes of the hashes, concatenated.
  [[nodiscard]] std::vector<std::uint8_t> bytes_of(std::span<const BlockHash> hashes) const;

  void stored(const StoredBlocks& stored);
  void removed(const BlockKey& name);
  void cleared();

  // Moves all events to the end of `out`.
  void take(std::vector<KvEvent>& out);

  // Checkpoint fields (schedule/checkpoint/state_archive.h). A new member does not compile until the structured binding names it.
  template <class Archive, class Self>
  static void fields(Archive& form, Self& self) {
    [[maybe_unused]] auto& [enabled, hash_bytes, events] = self;
    form(events);
  }

 private:
  bool enabled_;
  std::uint32_t hash_bytes_;
  std::vector<KvEvent> events_;  // oldest first
};

}  // namespace quire
