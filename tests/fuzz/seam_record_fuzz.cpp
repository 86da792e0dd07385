// Any bytes as a record of the seams' answers, as a core's calls or as its configuration: an error, or a value whose own bytes give it
// back.
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "base/check.h"
#include "quire/core_calls.h"
#include "quire/seam_record.h"

namespace quire {
namespace {

using Bytes = std::span<const std::uint8_t>;

void try_record(Bytes bytes) {
  const auto record = decode_seam_record(bytes);
  if (!record) QUIRE_CHECK(record.error().field == "record", "an error that names another field");
  if (!record) return;
  const auto again = decode_seam_record(encode(*record));
  QUIRE_CHECK(again && *again == *record, "a record comes back");
}

void try_calls(Bytes bytes) {
  CoreCallReader reader(bytes);
  Result<bool> read = reader.next();
  while (read && *read) read = reader.next();
  if (!read) QUIRE_CHECK(read.error().field == "calls", "an error that names another field");
}

void try_config(Bytes bytes) {
  const auto config = decode_core_config(bytes);
  if (!config) QUIRE_CHECK(config.error().field == "config", "an error that names another field");
  if (!config) return;
  const std::vector<std::uint8_t> own = encode(*config);  // compared, since a number may be none
  const auto again = decode_core_config(own);
  QUIRE_CHECK(again && encode(*again) == own, "a configuration comes back");
  const auto valid = config->validate();
  QUIRE_CHECK(valid || !valid.error().field.empty(), "an error without a field");
}

// What each form begins with, so that no time goes into finding it.
std::vector<std::uint8_t> beginning(std::uint8_t kind) {
  std::vector<std::uint8_t> bytes = kind == 0 ? encode(SeamRecord{}) : kind == 1 ? CoreCallWriter().take() : encode(CoreConfig{});
  bytes.resize(4);
  return bytes;
}

}  // namespace
}  // namespace quire

// The first byte says what the others are tried as, and whether they bring a beginning of their own.
extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  if (size == 0) return 0;
  const std::uint8_t kind = data[0] % 3;
  std::vector<std::uint8_t> bytes;
  if (data[0] < 128) bytes = quire::beginning(kind);
  bytes.insert(bytes.end(), data + 1, data + size);
  if (kind == 0) quire::try_record(bytes);
  if (kind == 1) quire::try_calls(bytes);
  if (kind == 2) quire::try_config(bytes);
  return 0;
}
