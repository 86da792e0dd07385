#pragma once
// Files of journals, and copies of them with one planted change.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <span>
#include <string>
#include <vector>

#include "core/journal/answer_form.h"
#include "core/journal/journal_form.h"
#include "core/journal/write_call.h"
#include "quire/journal.h"

namespace quire::test {

// In the order in which they were begun.
inline std::vector<std::string> journals_in(const std::string& folder) {
  std::vector<std::string> paths;
  for (const auto& entry : std::filesystem::directory_iterator(folder)) paths.push_back(entry.path());
  std::ranges::sort(paths);
  return paths;
}

inline std::string only_file(const std::string& folder) {
  const std::vector<std::string> paths = journals_in(folder);
  EXPECT_EQ(paths.size(), 1U);
  return paths.empty() ? "" : paths.front();
}

inline std::vector<std::uint8_t> bytes_of(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

inline void write_bytes(const std::string& path, std::span<const std::uint8_t> bytes) {
  std::ofstream(path, std::ios::binary).write(reinterpret_cast<const char*>(bytes.data()), static_cast<std::streamsize>(bytes.size()));
}

// Writes calls again, the token of one result changed.
class OtherToken final : public CallBytes {
 public:
  explicit OtherToken(std::uint64_t which) : left_(which) {}
  void apply(const StepResult& result, const StepInput& input) override {
    if (result.sampled.empty() || left_-- != 0) return CallBytes::apply(result, input);
    std::vector<SampledToken> sampled(result.sampled.begin(), result.sampled.end());
    sampled[0].token ^= 1;
    StepResult other = result;
    other.sampled = sampled;
    CallBytes::apply(other, input);
    is_changed = true;
  }
  bool is_changed = false;

 private:
  std::uint64_t left_;
};

struct Planted {
  std::string path;
  std::uint64_t call = 0;
};

// The journal with one change: a bit in the answer to its `which`-th call, or a token of its `which`-th result with tokens.
inline Planted plant(const std::string& from, const std::string& to, std::uint64_t which, bool of_result) {
  const std::vector<std::uint8_t> bytes = bytes_of(from);
  const auto reader = JournalReader::open(bytes).value();
  OtherToken calls(of_result ? which : UINT64_MAX);
  Planted planted{.path = to};
  std::vector<std::uint8_t> out = journal_beginning(reader->header());
  const auto write_state = [&](const JournalCheckpoint* checkpoint) {
    if (checkpoint != nullptr) append_frame(out, out.size(), FrameKind::checkpoint, journal_checkpoint(*checkpoint));
  };
  write_state(reader->start());
  for (std::uint64_t call = 0; reader->next(); ++call) {
    calls.out.bytes.clear();
    write_state(reader->checkpoint());
    const bool was_changed = calls.is_changed;
    reader->tell(calls);
    if (calls.is_changed != was_changed) planted.call = call;
    for (const SeamAnswer& a : reader->answers()) {
      calls.out.byte(static_cast<std::uint8_t>(kAnswerOf + static_cast<std::uint8_t>(a.call)));
      write_answer(calls.out, a.request, a.question, a.values, a.bytes);
    }
    JournalAnswer answer = reader->answer();
    const bool flips = !of_result && call == which;
    if (flips) answer.value ^= 1, planted.call = call;
    calls.out.byte(static_cast<std::uint8_t>(kPlanned + static_cast<std::uint8_t>(answer.kind)));
    if (answer.kind == JournalAnswer::Kind::answered)
      calls.out.number(answer.value);
    else if (answer.kind != JournalAnswer::Kind::refused)
      calls.out.fixed(answer.value);
    append_frame(out, out.size(), FrameKind::calls, calls.out.bytes);
  }
  write_bytes(to, out);
  return planted;
}

}  // namespace quire::test
