// Reads any bytes as a form: the first line is the Content-Type, the rest is the body. Parts are views of the body, in order and without
// overlap, or an error says what is wrong.
#include <cstddef>
#include <cstdint>
#include <string_view>

#include "base/check.h"
#include "fuzz/subject.h"
#include "server/api/audio/form_data.h"

static quire::test::FuzzSubject subject("a form with parts");

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::string_view input(reinterpret_cast<const char*>(data), size);
  const std::string_view type = input.substr(0, input.find('\n'));
  const std::string_view body = input.substr(type.size() < size ? type.size() + 1 : size);
  const auto parts = quire::parse_form(type, body);
  if (!parts) {
    QUIRE_CHECK(parts.error().field == "body" || parts.error().field == "Content-Type", "an error names its field");
    QUIRE_CHECK(!parts.error().message.empty());
    return 0;
  }
  subject.reached();
  QUIRE_CHECK(parts->size() <= quire::kMaxFormParts);
  const char* end = body.data();
  for (const quire::FormPart& part : *parts) {
    QUIRE_CHECK(!part.name.empty() && part.value.data() >= end, "parts follow each other");
    end = part.value.data() + part.value.size();
    QUIRE_CHECK(end <= body.data() + body.size(), "a part lies in the body");
  }
  return 0;
}
