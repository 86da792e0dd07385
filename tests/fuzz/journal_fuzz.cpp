// Any bytes as a journal: an error, or calls and then what is wrong.
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "base/check.h"
#include "core/journal/journal_form.h"
#include "quire/core_calls.h"
#include "quire/journal.h"

namespace quire {
namespace {

void try_journal(std::span<const std::uint8_t> bytes) {
  const auto reader = JournalReader::open(bytes);
  if (!reader) QUIRE_CHECK(!reader.error().field.empty(), "an error without a field");
  if (!reader) return;
  CoreCallWriter told;
  while ((*reader)->next()) {
    (*reader)->tell(told.sink());
    QUIRE_CHECK((*reader)->position() <= bytes.size(), "it reads what there is");
    (void)told.take();
  }
  QUIRE_CHECK((*reader)->end() == JournalEnd::cut || (*reader)->position() <= bytes.size(), "an end is somewhere");
}

}  // namespace
}  // namespace quire

// The first byte says whether the others are a whole journal, or what is behind the check of a frame of that kind.
extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  if (size == 0) return 0;
  const std::span<const std::uint8_t> rest(data + 1, size - 1);
  const std::uint8_t kind = data[0] % (quire::kLastFrameKind + 1);
  if (kind == 0) return quire::try_journal(rest), 0;
  std::vector<std::uint8_t> bytes(quire::kJournalMagic.begin(), quire::kJournalMagic.end());
  if (kind != 1) bytes = quire::journal_beginning({});
  quire::append_frame(bytes, bytes.size(), static_cast<quire::FrameKind>(kind), rest);
  quire::try_journal(bytes);
  return 0;
}
