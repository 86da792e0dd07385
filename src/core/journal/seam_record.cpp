// Byte format of a record: "QSA" and a version, a byte of flags, then the answers.
#include "quire/seam_record.h"

#include <fmt/format.h>

#include <utility>

#include "core/journal/answer_format.h"
#include "core/journal/byte_stream.h"

namespace quire {
namespace {

constexpr std::uint8_t kMagic[] = {'Q', 'S', 'A', 2};

}  // namespace

std::vector<std::uint8_t> encode(const SeamRecord& record) {
  ByteWriter out;
  for (const std::uint8_t byte : kMagic) out.byte(byte);
  out.byte(seam_flags(record));
  for (const SeamAnswer& answer : record.answers) {
    out.byte(static_cast<std::uint8_t>(answer.call));
    write_answer(out, answer.request, answer.question, answer.values, answer.bytes);
  }
  return std::move(out.bytes);
}

Result<SeamRecord> decode_seam_record(std::span<const std::uint8_t> bytes) {
  ByteReader in(bytes);
  for (const std::uint8_t expected : kMagic)
    if (in.byte() != expected) in.fail();
  SeamRecord record;
  read_seam_flags(in, record);
  while (!in.failed() && !in.at_end()) read_answer(in, in.byte(), record.answers.emplace_back());
  if (in.failed()) {
    return fail(ErrorCode::invalid_argument, "record",
                fmt::format("the data from byte {} on is not a valid record of answers", in.position()),
                "use the output of encode() of this version");
  }
  return record;
}

}  // namespace quire
