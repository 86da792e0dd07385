// Reads any bytes as a journal. The result is an error, or calls and then the damage. Also restores any core state from a journal: the
// result is an error, or a core whose invariants hold.
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "base/check.h"
#include "core/journal/journal_format.h"
#include "core/schedule/checkpoint/checksum.h"
#include "fuzz/subject.h"
#include "quire/core.h"
#include "quire/core_calls.h"
#include "quire/journal.h"

namespace quire {
namespace {

test::FuzzSubject subject("a readable call");

void try_journal(std::span<const std::uint8_t> bytes) {
  const auto reader = JournalReader::open(bytes);
  if (!reader) QUIRE_CHECK(!reader.error().field.empty(), "an error has a field");
  if (!reader) return;
  if (const JournalCheckpoint* start = (*reader)->start()) QUIRE_CHECK(start->state.size() <= bytes.size(), "a state is what there is");
  CoreCallWriter told;
  while ((*reader)->next()) {
    const JournalCheckpoint* checkpoint = (*reader)->checkpoint();
    QUIRE_CHECK(checkpoint == nullptr || checkpoint->state.size() <= bytes.size(), "a state is what there is");
    subject.reached();
    told.sink().on_call((*reader)->call());
    QUIRE_CHECK((*reader)->position() <= bytes.size(), "it reads what there is");
    (void)told.take();
  }
  QUIRE_CHECK((*reader)->end() == JournalEnd::cut || (*reader)->position() <= bytes.size(), "an end is somewhere");
}

CoreConfig small_config() {
  CoreConfig config;
  config.block_size = 4;
  FullAttentionSpec spec;
  spec.block_size = 4;
  config.scheduler.max_num_seqs = 4;
  config.scheduler.max_model_len = 64;
  config.kv = {.num_blocks = 16, .groups = {{.layer_names = {"layer"}, .spec = spec, .layer_specs = {}}}, .tensors = {}};
  return config;
}

// Writes the body after a valid checkpoint head, with a valid checksum. An empty body leaves the state of a running core.
void try_state(std::span<const std::uint8_t> body) {
  const CoreConfig config = small_config();
  const auto made = Core::create(config).value();
  const std::vector<TokenId> prompt(10, 7);
  for (std::uint64_t id = 0; id < 3; ++id) QUIRE_CHECK(made->add({.id = RequestId{id}, .prompt = prompt, .max_tokens = 4}), "it fits");
  (void)made->schedule();
  const bool with_tokens = body.empty() || (body.front() & 1U) == 0;
  std::vector<std::uint8_t> state = made->checkpoint(with_tokens ? CheckpointTokens::kept : CheckpointTokens::left_out);
  constexpr std::size_t kHead = 12, kSum = 8;
  // The body replaces single bytes of a valid state.
  for (std::size_t i = 0; i + 2 < body.size(); i += 3)
    state[kHead + (body[i] | std::size_t{body[i + 1]} << 8U) % (state.size() - kHead - kSum)] = body[i + 2];
  if (body.size() % 3 == 1) state.resize(std::min(state.size(), kHead + kSum + body.back()));
  state.resize(state.size() - kSum);
  const std::uint64_t sum = checksum(state);
  for (unsigned shift = 0; shift < 64; shift += 8) state.push_back(static_cast<std::uint8_t>(sum >> shift));
  JournalHeader header;
  header.config = config;
  std::vector<std::uint8_t> bytes = journal_header_frame(header);
  append_frame(bytes, bytes.size(), FrameKind::checkpoint, journal_checkpoint({.state = state}));
  const auto reader = JournalReader::open(bytes);
  QUIRE_CHECK(reader && (*reader)->start() != nullptr, "a state of any bytes is one to a reader");
  const auto core = Core::restore((*reader)->header().config, {}, (*reader)->start()->state);
  if (!core) QUIRE_CHECK(!core.error().field.empty(), "an error has a field");
  if (!core) return;
  (*core)->check_invariants();
}

}  // namespace
}  // namespace quire

// The first byte selects what the others are: a whole journal, the payload of a frame of some kind, or changes of a state.
extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  if (size == 0) return 0;
  const std::span<const std::uint8_t> rest(data + 1, size - 1);
  const std::uint8_t kind = data[0] % (quire::kLastFrameKind + 2);
  if (kind > quire::kLastFrameKind) return quire::try_state(rest), 0;
  if (kind == 0) return quire::try_journal(rest), 0;
  std::vector<std::uint8_t> bytes(quire::kJournalMagic.begin(), quire::kJournalMagic.end());
  if (kind != 1) bytes = quire::journal_header_frame({});
  quire::append_frame(bytes, bytes.size(), static_cast<quire::FrameKind>(kind), rest);
  quire::try_journal(bytes);
  return 0;
}
