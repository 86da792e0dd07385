// Reads any bytes as a streamed answer: the first two bytes say where the rest is cut. The result is a completed or a failed request. The
// cut does not change the result.
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <string_view>

#include "base/check.h"
#include "fuzz/subject.h"
#include "traffic/answer_reader.h"

namespace {

constexpr unsigned kOk = 200;

quire::RequestRecord read(std::string_view first, std::string_view second) {
  const quire::AnswerReader::Clock::time_point now{};
  quire::AnswerReader reader(now);
  reader.take(kOk, first, now);
  reader.take(kOk, second, now);
  return reader.finish(kOk, now);
}

}  // namespace

static quire::test::FuzzSubject subject("a completed answer");

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using End = quire::RequestRecord::End;
  if (size < 2) return 0;
  const std::string_view body(reinterpret_cast<const char*>(data + 2), size - 2);
  const std::size_t cut = std::min<std::size_t>(body.size(), data[0] | data[1] << 8);
  const quire::RequestRecord whole = read(body, ""), parts = read(body.substr(0, cut), body.substr(cut));
  QUIRE_CHECK(whole.end == parts.end && whole.failure == parts.failure, "the cut does not change how the answer ends");
  QUIRE_CHECK(whole.output_tokens == parts.output_tokens && whole.gaps_s.size() == parts.gaps_s.size(),
              "the cut does not change the counts");
  QUIRE_CHECK((whole.end == End::failed) != whole.failure.empty(), "exactly a failed request has a reason");
  if (whole.end == End::completed) subject.reached();
  return 0;
}
