#pragma once
// The measurements of one request of a load run.
#include <cstdint>
#include <string>
#include <vector>

namespace quire {

struct RequestRecord {
  enum class End : std::uint8_t {
    none,  // not sent, or still in progress when the run was stopped
    completed,
    failed
  };

  double sent_s = -1.0;         // time of sending since the start of the run; -1: not sent
  double ttft_s = 0.0;          // from sending to the first chunk with text
  double latency_s = 0.0;       // from sending to the last chunk; if the request failed, to the failure
  std::vector<float> gaps_s{};  // times between chunks with text
  std::uint32_t prompt_tokens = 0, output_tokens = 0, cached_tokens = 0;
  // The server reported the numbers of tokens. Otherwise prompt_tokens is the length in the workload, and output_tokens the number of
  // chunks.
  bool has_usage = false;
  bool has_cached_tokens = false;
  End end = End::none;
  std::string failure{};  // reason of the failure, such as "429: the queue is full"

  // Returns the mean time per output token after the first, in seconds; 0 if there is no such token.
  [[nodiscard]] double tpot_s() const { return output_tokens > 1 ? (latency_s - ttft_s) / (output_tokens - 1) : 0.0; }
};

}  // namespace quire
