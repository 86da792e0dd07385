#pragma once
// Small workloads and files for the lab's tests.
#include <gtest/gtest.h>
#include <unistd.h>

#include <cstdlib>
#include <cstring>
#include <fstream>
#include <string>
#include <string_view>

#include "base/digest.h"
#include "quire/simulation.h"
#include "support/decision_record.h"

namespace quire::test {

// A file with this text; the destructor removes it.
class TextFile {
 public:
  explicit TextFile(std::string_view text) {
    path_ = ::testing::TempDir() + "quire_lab_XXXXXX";
    close(mkstemp(path_.data()));
    std::ofstream(path_, std::ios::binary) << text;
  }
  ~TextFile() { unlink(path_.c_str()); }
  TextFile(const TextFile&) = delete;
  TextFile& operator=(const TextFile&) = delete;
  [[nodiscard]] const std::string& path() const { return path_; }

 private:
  std::string path_;
};

// Compares the text's digest with the next line of the running test in the record. QUIRE_RECORD_DECISIONS=1 rewrites the lines of the tests
// that run.
inline void expect_recorded(std::string_view text) {
  static DecisionRecord record("tests/golden/lab_reports.txt");
  const Sha256Digest digest = Sha256::of(std::as_bytes(std::span(text)));
  std::uint64_t first = 0;
  std::memcpy(&first, digest.data(), sizeof first);
  record.expect(first);
}

// Uses round numbers: 1 s per step, 0.1 s per prompt token, 0.5 s per row.
inline WorkerModel round_worker() {
  return {.host_s = 0.0,
          .step_s = 1.0,
          .prefill_token_s = 0.1,
          .decode_row_s = 0.5,
          .context_token_s = 0.0,
          .prefill_pair_s = 0.0,
          .source = "round numbers"};
}

inline SimulationOptions small_options(bool async) {
  SimulationOptions options;
  options.scheduler.async_scheduling = async;
  options.scheduler.max_num_seqs = 8;
  options.scheduler.max_num_batched_tokens = 64;
  options.num_blocks = 1000;
  options.block_size = 16;
  options.worker = round_worker();
  return options;
}

inline WorkloadRequest request_at(double start_s, std::uint32_t prompt_tokens, std::uint32_t output_tokens) {
  WorkloadRequest request;
  request.start_s = start_s;
  request.prompt_tokens = prompt_tokens;
  request.output_tokens = output_tokens;
  return request;
}

inline Workload workload_of(std::vector<WorkloadRequest> requests) {
  Workload workload;
  workload.name = "test";
  workload.requests = std::move(requests);
  return workload;
}

// The requests are numerous enough that the cache of `small_options` with few blocks preempts.
inline Workload random_workload(std::uint64_t seed, std::uint32_t num_requests = 120) {
  return generate_workload({.num_requests = num_requests,
                            .rate_per_s = 5.0,
                            .input_tokens = 60.0,
                            .output_tokens = 30.0,
                            .spread = 0.8,
                            .shared_tokens = 16,
                            .num_prefixes = 3,
                            .seed = seed})
      .value();
}

}  // namespace quire::test
