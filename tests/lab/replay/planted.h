#pragma once
// Finds files of journals and copies them with one injected change.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <span>
#include <string>
#include <variant>
#include <vector>

#include "core/journal/answer_format.h"
#include "core/journal/call_bytes.h"
#include "core/journal/journal_format.h"
#include "quire/journal.h"

namespace quire::test {

// Returns the files in the order of their creation.
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

struct Planted {
  std::string path;
  std::uint64_t call = 0;
};

// Returns the journal with one change: a bit in the answer to its `which`-th call, or the tokens of its `which`-th result with tokens. With
// `extra`, the change is this answer of a seam in the `which`-th call.
inline Planted plant(const std::string& from, const std::string& to, std::uint64_t which, bool of_result,
                     const SeamAnswer* extra = nullptr) {
  const std::vector<std::uint8_t> bytes = bytes_of(from);
  const auto reader = JournalReader::open(bytes).value();
  Planted planted{.path = to};
  std::vector<std::uint8_t> out = journal_header_frame(reader->header());
  const auto write_state = [&](const JournalCheckpoint* checkpoint) {
    if (checkpoint != nullptr) append_frame(out, out.size(), FrameKind::checkpoint, journal_checkpoint(*checkpoint));
  };
  write_state(reader->start());
  for (std::uint64_t call = 0, num_results = 0; reader->next(); ++call) {
    write_state(reader->checkpoint());
    ByteWriter frame;
    const auto* const apply = std::get_if<core_call::Apply>(&reader->call());
    if (of_result && apply != nullptr && !apply->result.sampled.empty() && num_results++ == which) {
      std::vector<SampledToken> sampled(apply->result.sampled.begin(), apply->result.sampled.end());
      for (SampledToken& token : sampled) token.token ^= 1;
      core_call::Apply changed = *apply;
      changed.result.sampled = sampled;
      write_call(frame, changed);
      planted.call = call;
    } else {
      write_call(frame, reader->call());
    }
    std::vector<SeamAnswer> answers = reader->answers();
    const bool has_extra = extra != nullptr && call == which;
    if (has_extra) answers.push_back(*extra), planted.call = call;
    for (const SeamAnswer& a : answers) {
      frame.byte(static_cast<std::uint8_t>(kSeamAnswerBase + static_cast<std::uint8_t>(a.call)));
      write_answer(frame, a.request, a.question, a.values, a.bytes);
    }
    JournalAnswer answer = reader->answer();
    const bool flips = !of_result && extra == nullptr && call == which;
    if (flips) answer.value ^= 1, planted.call = call;
    frame.byte(static_cast<std::uint8_t>(kPlanned + static_cast<std::uint8_t>(answer.kind)));
    if (answer.kind == JournalAnswer::Kind::answered)
      frame.number(answer.value);
    else if (answer.kind != JournalAnswer::Kind::refused)
      frame.fixed(answer.value);
    append_frame(out, out.size(), FrameKind::calls, frame.bytes);
  }
  write_bytes(to, out);
  return planted;
}

}  // namespace quire::test
