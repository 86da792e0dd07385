// The byte form: "QSA" and a version, a byte of flags, then each answer.
#include "quire/seam_record.h"

#include <fmt/format.h>

#include <utility>

#include "core/journal/byte_form.h"

namespace quire {
namespace {

constexpr std::uint8_t kMagic[] = {'Q', 'S', 'A', 2};

SeamAnswer read_answer(ByteReader& in) {
  SeamAnswer answer;
  const std::uint8_t call = in.byte();
  if (call < static_cast<std::uint8_t>(SeamCall::connector_match) || call > static_cast<std::uint8_t>(SeamCall::grammar_fork)) in.fail();
  answer.call = static_cast<SeamCall>(call);
  answer.request.value = in.number();
  answer.question = in.fixed();
  answer.values.resize(in.count());
  for (std::uint64_t& value : answer.values) value = in.number();
  answer.bytes = in.text();
  return answer;
}

}  // namespace

std::vector<std::uint8_t> encode(const SeamRecord& record) {
  ByteWriter out;
  for (const std::uint8_t byte : kMagic) out.byte(byte);
  out.byte(static_cast<std::uint8_t>((record.has_connector ? 1U : 0U) | (record.has_encoder_connector ? 2U : 0U) |
                                     (record.has_grammar ? 4U : 0U) | (record.has_tools ? 8U : 0U) | (record.has_hash ? 16U : 0U)));
  for (const SeamAnswer& answer : record.answers) {
    out.byte(static_cast<std::uint8_t>(answer.call));
    out.number(answer.request.value);
    out.fixed(answer.question);
    out.number(answer.values.size());
    for (const std::uint64_t value : answer.values) out.number(value);
    out.text(answer.bytes);
  }
  return std::move(out.bytes);
}

Result<SeamRecord> decode_seam_record(std::span<const std::uint8_t> bytes) {
  ByteReader in(bytes);
  for (const std::uint8_t expected : kMagic)
    if (in.byte() != expected) in.fail();
  const std::uint8_t flags = in.byte();
  if (flags >= 32) in.fail();
  SeamRecord record{.has_connector = (flags & 1U) != 0,
                    .has_encoder_connector = (flags & 2U) != 0,
                    .has_grammar = (flags & 4U) != 0,
                    .has_tools = (flags & 8U) != 0,
                    .has_hash = (flags & 16U) != 0,
                    .answers = {}};
  while (!in.failed() && !in.at_end()) record.answers.push_back(read_answer(in));
  if (in.failed()) {
    return fail(ErrorCode::invalid_argument, "record", fmt::format("is no record of answers from byte {} on", in.position()),
                "give what encode() made, in this version");
  }
  return record;
}

}  // namespace quire
