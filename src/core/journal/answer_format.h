#pragma once
// Byte format of a seam's answer, after a byte with the call, and of the flags that say which seams exist.
#include <cstdint>
#include <span>
#include <string_view>

#include "core/journal/byte_stream.h"
#include "quire/seam_record.h"

namespace quire {

inline std::uint8_t seam_flags(const SeamRecord& record) {
  return static_cast<std::uint8_t>((record.has_connector ? 1U : 0U) | (record.has_encoder_connector ? 2U : 0U) |
                                   (record.has_grammar ? 4U : 0U) | (record.has_tools ? 8U : 0U) | (record.has_hash ? 16U : 0U) |
                                   (record.omits_tokens ? 32U : 0U));
}

inline void read_seam_flags(ByteReader& in, SeamRecord& record) {
  const std::uint8_t flags = in.byte();
  if (flags >= 64) in.fail();
  record.has_connector = (flags & 1U) != 0;
  record.has_encoder_connector = (flags & 2U) != 0;
  record.has_grammar = (flags & 4U) != 0;
  record.has_tools = (flags & 8U) != 0;
  record.has_hash = (flags & 16U) != 0;
  record.omits_tokens = (flags & 32U) != 0;
}

inline void write_answer(ByteWriter& out, RequestId request, std::uint64_t question, std::span<const std::uint64_t> values,
                         std::string_view bytes) {
  out.number(request.value);
  out.fixed(question);
  out.number(values.size());
  for (const std::uint64_t value : values) out.number(value);
  out.text(bytes);
}

inline void read_answer(ByteReader& in, std::uint8_t call, SeamAnswer& answer) {
  if (call < static_cast<std::uint8_t>(SeamCall::connector_match) || call > static_cast<std::uint8_t>(SeamCall::grammar_failed)) in.fail();
  answer.call = static_cast<SeamCall>(call);
  answer.request.value = in.number();
  answer.question = in.fixed();
  answer.values.resize(in.count());
  for (std::uint64_t& value : answer.values) value = in.number();
  answer.bytes = in.text();
}

}  // namespace quire
