#pragma once
#include <cstdint>

namespace quire {

// The role of this server when prefill and decode run on different servers (kv_transfer_params; docs/disaggregation.md).
enum class KvRole : std::uint8_t {
  none,
  producer,  // keeps the blocks of prompts that it has computed for other servers
  consumer,  // loads blocks that other servers have computed
  both
};

}  // namespace quire
