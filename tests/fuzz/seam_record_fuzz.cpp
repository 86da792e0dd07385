// Reads any bytes as a record of the seams' answers, as a core's calls or as its configuration. The result is an error, or a value that is
// equal after it is written and read again.
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "base/check.h"
#include "fuzz/subject.h"
#include "quire/core_calls.h"
#include "quire/seam_record.h"

namespace quire {
namespace {

test::FuzzSubject subject_of_config("a readable configuration");

test::FuzzSubject subject("a readable record");

using Bytes = std::span<const std::uint8_t>;

void try_record(Bytes bytes) {
  const auto record = decode_seam_record(bytes);
  if (!record) QUIRE_CHECK(record.error().field == "record", "the error names its field");
  if (!record) return;
  subject.reached();
  const auto again = decode_seam_record(encode(*record));
  QUIRE_CHECK(again && *again == *record, "a record comes back");
}

void try_calls(Bytes bytes) {
  CoreCallReader reader(bytes);
  Result<bool> read = reader.next();
  while (read && *read) read = reader.next();
  if (!read) QUIRE_CHECK(read.error().field == "calls", "the error names its field");
}

void try_config(Bytes bytes) {
  const auto config = decode_core_config(bytes);
  if (!config) QUIRE_CHECK(config.error().field == "config", "the error names its field");
  if (!config) return;
  subject_of_config.reached();
  const std::vector<std::uint8_t> own = encode(*config);  // the bytes are compared, since a number may be NaN
  const auto again = decode_core_config(own);
  QUIRE_CHECK(again && encode(*again) == own, "a configuration comes back");
  const auto valid = config->validate();
  QUIRE_CHECK(valid || !valid.error().field.empty(), "an error has a field");
}

// Returns the first bytes of each format, so that the fuzzer does not have to find them.
std::vector<std::uint8_t> beginning(std::uint8_t kind) {
  std::vector<std::uint8_t> bytes = kind == 0 ? encode(SeamRecord{}) : CoreCallWriter().take();
  bytes.resize(4);
  return bytes;
}

// Returns the default configuration with some bytes changed, so that it can be read whatever fields it has. Two bytes are the position of a
// change, and one byte is the new value.
std::vector<std::uint8_t> changed_config(Bytes changes) {
  std::vector<std::uint8_t> bytes = encode(CoreConfig{});
  for (std::size_t i = 0; i + 2 < changes.size(); i += 3) bytes[(changes[i] * 256U + changes[i + 1]) % bytes.size()] = changes[i + 2];
  return bytes;
}

}  // namespace
}  // namespace quire

// The first byte selects the format of the others, and whether they include the first bytes or change a configuration.
extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  if (size == 0) return 0;
  const std::uint8_t kind = data[0] % 3;
  const bool has_beginning = data[0] >= 128;
  if (kind == 2 && !has_beginning) {
    quire::try_config(quire::changed_config({data + 1, size - 1}));
    return 0;
  }
  std::vector<std::uint8_t> bytes;
  if (!has_beginning) bytes = quire::beginning(kind);
  bytes.insert(bytes.end(), data + 1, data + size);
  if (kind == 0) quire::try_record(bytes);
  if (kind == 1) quire::try_calls(bytes);
  if (kind == 2) quire::try_config(bytes);
  return 0;
}
