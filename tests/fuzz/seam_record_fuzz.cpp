// Any bytes as a record of the seams' answers: an error, or a record whose own bytes give it back.
#include <cstddef>
#include <cstdint>

#include "base/check.h"
#include "quire/seam_record.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const auto record = quire::decode_seam_record({data, size});
  if (!record) {
    QUIRE_CHECK(!record.error().message.empty(), "an error without a message");
    return 0;
  }
  const auto again = quire::decode_seam_record(quire::encode(*record));
  QUIRE_CHECK(again && *again == *record, "a record comes back");
  return 0;
}
