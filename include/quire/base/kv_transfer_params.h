#pragma once
// What two servers tell each other of a request whose prompt one of them computes and whose answer the other one gives: vLLM's
// kv_transfer_params, as its NIXL connector and the proxies in front of it use them (docs/disaggregation.md).
//
//   proxy -> producer   do_remote_decode                       compute the prompt, and keep its blocks for another server
//   producer -> proxy   do_remote_prefill, where they lie      with the answer
//   proxy -> consumer   the same                               load them from there, and go on
//
// Values, as they were in the bodies of requests and answers: what a consumer finds in them it believes only as far as it can verify it.
#include <cstdint>
#include <string>
#include <vector>

namespace quire {

struct KvTransferParams {
  bool do_remote_decode = false;
  bool do_remote_prefill = false;
  // Of the producer's KV cache, by cache group; empty: it keeps none, and the prompt is computed where the answer is.
  std::vector<std::vector<std::uint32_t>> remote_block_ids{};
  std::string remote_engine_id{};
  std::string remote_request_id{};
  std::string remote_host{};
  std::uint16_t remote_port = 0;
  std::uint32_t tp_size = 1;

  friend bool operator==(const KvTransferParams&, const KvTransferParams&) = default;
};

}  // namespace quire
