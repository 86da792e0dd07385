#pragma once
// Parameters of disaggregated prefill: one server (the producer) computes the prompt, and another server (the consumer) generates the
// answer. They are vLLM's kv_transfer_params, as vLLM's NIXL connector and its proxies use them (docs/disaggregation.md).
//
//   proxy -> producer   do_remote_decode                             compute the prompt, and keep its blocks for another server
//   producer -> proxy   do_remote_prefill, and where the blocks are  sent with the answer
//   proxy -> consumer   the same fields                              load the blocks from there, and continue
//
// Values, as in the bodies of requests and answers. A consumer trusts a field only as far as it can verify it.
#include <cstdint>
#include <string>
#include <vector>

namespace quire {

// The parameters of one request or answer.
struct KvTransferParams {
  bool do_remote_decode = false;
  bool do_remote_prefill = false;
  // Blocks in the producer's KV cache, by cache group. Empty: the producer keeps no blocks, and the consumer computes the prompt.
  std::vector<std::vector<std::uint32_t>> remote_block_ids{};
  std::string remote_engine_id{};
  std::string remote_request_id{};
  std::string remote_host{};
  std::uint16_t remote_port = 0;
  std::uint32_t tp_size = 1;

  friend bool operator==(const KvTransferParams&, const KvTransferParams&) = default;
};

}  // namespace quire
