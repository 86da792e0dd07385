// Measures the cost of the journal on the engine thread. Two cores, one with a journal, get the same requests and take turns. Prints
// microseconds of schedule() and apply() per decode step, and the size of the file. Another thread makes frames of the journal's bytes and
// writes the frames.
//
//   journal_bench [RUNNING...]
#include <fmt/format.h>
#include <stdlib.h>

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <filesystem>
#include <memory>
#include <thread>
#include <vector>

#include "quire/core.h"
#include "quire/journal.h"
#include "value.h"

namespace {

using namespace quire;
using Clock = std::chrono::steady_clock;

constexpr std::uint32_t kPromptTokens = 128, kBlockSize = 16, kSteps = 1000;
constexpr double kStep_us = 10'000.0;  // step of a model, for comparison with the cost

CoreConfig config_of(std::uint32_t num_requests) {
  CoreConfig config;
  config.scheduler.max_num_seqs = config.scheduler.max_num_waiting = num_requests;
  config.scheduler.max_num_batched_tokens = std::max(8192U, num_requests);
  config.scheduler.max_model_len = 8192;
  config.scheduler.async_scheduling = config.report.log_stats = config.report.count_common_prefix = false;
  config.block_size = kBlockSize;
  config.kv.num_blocks = num_requests * (kPromptTokens + 2 * kSteps) / kBlockSize + 64;
  config.kv.groups.push_back({.layer_names = {}, .spec = FullAttentionSpec{}, .layer_specs = {}});
  return config;
}

void add_all(Core& core, std::uint32_t num_requests) {
  std::vector<TokenId> prompt(kPromptTokens);
  for (std::uint32_t i = 0; i < num_requests; ++i) {
    for (std::uint32_t j = 0; j < kPromptTokens; ++j) prompt[j] = static_cast<TokenId>((i * 7 + j) % 30000);
    value(core.add({.id = RequestId{i}, .prompt = prompt, .max_tokens = 4 * kSteps}));
  }
}

// Returns the microseconds of one schedule() and apply(); 0 for a step that still computes prompts.
double step(Core& core, std::uint32_t num_requests, std::vector<SampledToken>& sampled) {
  auto begin = Clock::now();
  const StepPlan& plan = core.schedule({.now = 1e5, .random = 0x123456789abcdef});
  double spent_us = std::chrono::duration<double, std::micro>(Clock::now() - begin).count();
  sampled.clear();
  for (const ScheduledRequest& s : plan.scheduled)
    if (s.samples) sampled.push_back({s.id, static_cast<TokenId>(11 + s.id.value * 97 % 150'000)});
  const bool decodes = plan.num_scheduled_tokens == num_requests && sampled.size() == num_requests;
  begin = Clock::now();
  value(core.apply({.step = plan.step, .sampled = sampled}, {.now = 1e5}));
  spent_us += std::chrono::duration<double, std::micro>(Clock::now() - begin).count();
  return decodes ? spent_us : 0.0;
}

double median(std::vector<double>& values) {
  const auto middle = values.begin() + static_cast<std::ptrdiff_t>(values.size() / 2);
  std::nth_element(values.begin(), middle, values.end());
  return *middle;
}

void run(std::uint32_t num_requests, const std::string& folder) {
  const CoreConfig config = config_of(num_requests);
  auto journal = value(CoreJournal::create({.folder = folder}, config, {}));
  const auto plain = value(Core::create(config)), journaled = value(Core::create(config, journal->seams()));
  add_all(*plain, num_requests);
  add_all(*journaled, num_requests);
  std::vector<SampledToken> sampled;
  std::vector<double> off_us, on_us;
  std::uint64_t first_bytes = 0;
  while (on_us.size() < kSteps) {
    const double off = step(*plain, num_requests, sampled), on = step(*journaled, num_requests, sampled);
    if (on > 0.0) off_us.push_back(off), on_us.push_back(on);
    // Waits for the time of a model's step, so that the writing thread has as much time and wakes as often as in a server.
    std::this_thread::sleep_for(std::chrono::microseconds(on > 0.0 ? 2000 : 50'000));
    if (on_us.empty()) first_bytes = journal->num_bytes();
  }
  std::this_thread::sleep_for(std::chrono::milliseconds(200));
  const double bytes = static_cast<double>(journal->num_bytes() - first_bytes) / kSteps;
  if (const auto end = journal->end()) fmt::print(stderr, "the journal has ended: {}\n", journal_end_name(*end));
  const double off = median(off_us), on = median(on_us);
  fmt::print("{:7}  {:10.1f} {:10.1f} {:10.1f}  {:15.2f} %  {:14.0f}\n", num_requests, off, on, on - off, 100.0 * (on - off) / kStep_us,
             bytes);
}

}  // namespace

int main(int argc, char** argv) {
  std::vector<std::uint32_t> counts;
  for (int i = 1; i < argc; ++i) counts.push_back(static_cast<std::uint32_t>(std::strtoul(argv[i], nullptr, 10)));
  if (counts.empty()) counts = {64, 1024};
  std::string folder = (std::filesystem::temp_directory_path() / "quire_journal_bench_XXXXXX").string();
  if (mkdtemp(folder.data()) == nullptr) return 1;
  fmt::print("us per plan and result (median of {} decode steps)\n", kSteps);
  fmt::print("{:>7}  {:>10} {:>10} {:>10}  {:>17}  {:>14}\n", "running", "without", "journaled", "more", "of a 10 ms step",
             "bytes per step");
  for (const std::uint32_t count : counts) run(count, folder);
  std::filesystem::remove_all(folder);
}
