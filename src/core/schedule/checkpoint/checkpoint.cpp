// Format of a checkpoint: "QCP" and a version, a fingerprint of the configuration, the state, and a checksum of all bytes before it.
// The host writes a checkpoint between two calls and restores it into a new core. The input may be arbitrary bytes. Reading allocates no
// more memory than the size of the input justifies, plus the memory that the configuration reserves for running requests. The whole state
// is checked before the caller gets the core.
#include <fmt/format.h>

#include <iterator>
#include <utility>

#include "base/check.h"
#include "core/kv/kv_coordinator.h"
#include "core/schedule/checkpoint/checksum.h"
#include "core/schedule/checkpoint/state_archive.h"
#include "core/schedule/state.h"
#include "quire/core_calls.h"

namespace quire {
namespace {

// The last byte is the version. Increase it when a listed field changes.
constexpr std::uint8_t kCheckpointMagic[] = {'Q', 'C', 'P', 9};
constexpr std::size_t kHeadBytes = sizeof kCheckpointMagic + 8, kSumBytes = 8;

std::unexpected<Error> no_checkpoint(std::string message) {
  return fail(ErrorCode::invalid_argument, "checkpoint", std::move(message),
              "use a checkpoint that Core::checkpoint() of this version made");
}

std::uint64_t fixed_at(std::span<const std::uint8_t> bytes, std::size_t at) {
  QUIRE_CHECK(at <= bytes.size() && bytes.size() - at >= sizeof(std::uint64_t), "at least eight bytes are left");
  return ByteReader(bytes.subspan(at)).fixed();
}

Result<void> check_head(std::span<const std::uint8_t> bytes, const CoreConfig& config) {
  const auto differs = std::ranges::mismatch(bytes, kCheckpointMagic);
  if (differs.in2 != std::end(kCheckpointMagic))
    return no_checkpoint(fmt::format("is not a core checkpoint: the header differs from byte {} on", differs.in1 - bytes.begin()));
  if (bytes.size() < kHeadBytes + kSumBytes)
    return no_checkpoint(fmt::format("is truncated: it ends at byte {}, within the header", bytes.size()));
  const std::size_t end = bytes.size() - kSumBytes;
  if (checksum(bytes.first(end)) != fixed_at(bytes, end))
    return no_checkpoint(fmt::format("is corrupted or truncated: the checksum at byte {} does not match", end));
  if (fixed_at(bytes, sizeof kCheckpointMagic) != checksum(encode(config)))
    return fail(ErrorCode::invalid_argument, "config", "differs from the configuration of the checkpoint",
                "use the same configuration and the same version");
  return {};
}

// Returns an estimate of the checkpoint's size in bytes, so that the buffer is rarely reallocated.
std::size_t num_expected_bytes(const RequestTable& table, std::uint32_t num_blocks, std::uint32_t num_named) {
  constexpr std::size_t kPerRequest = 512, kPerBlock = 8, kPerName = sizeof(BlockHash) + sizeof(PrefixIndex::CachedEntry), kRest = 4096;
  std::size_t size = kRest + num_blocks * kPerBlock + num_named * kPerName;
  for (const auto& [id, request] : table.all())
    size += kPerRequest + request->tokens.size() * sizeof(TokenId) + request->hashes.size() * (sizeof(BlockHash) + sizeof(BlockId));
  return size;
}

}  // namespace

std::vector<std::uint8_t> Core::checkpoint(CheckpointTokens tokens, const PseudonymKey* key) const {
  const State& s = *state_;
  StateWriter form;
  form.omits_tokens = tokens == CheckpointTokens::left_out;
  form.pseudonym_key = key;
  form.out.bytes.reserve(num_expected_bytes(s.table, s.kv.pool().num_blocks(), s.kv.pool().index().size()));
  form.out.bytes.assign(std::begin(kCheckpointMagic), std::end(kCheckpointMagic));
  form.out.fixed(checksum(encode(s.context.config)));
  State::fields(form, s);
  form.out.fixed(checksum(form.out.bytes));
  return std::move(form.out.bytes);
}

Result<std::unique_ptr<Core>> Core::restore(const CoreConfig& config, const CoreSeams& seams, std::span<const std::uint8_t> bytes) {
  auto made = make(config, seams);
  if (!made) return made;
  State& s = *(*made)->state_;
  if (auto valid = check_head(bytes, s.context.config); !valid) return std::unexpected(valid.error());
  StateReader form(bytes.first(bytes.size() - kSumBytes), s.table, s.jobs.has_agent() ? &s.jobs.agent().jobs : nullptr, s.open_transfers);
  while (form.in.position() < kHeadBytes) form.in.byte();  // check_head() has checked these bytes
  State::fields(form, s);
  if (!form.in.at_end()) form.expect(false, "no bytes follow the state");
  if (!form.is_good()) {
    return no_checkpoint(fmt::format("is not a valid core state at byte {}{}{}", form.in.position(),
                                     form.why() == nullptr ? "" : ": this must hold: ", form.why() == nullptr ? "" : form.why()));
  }
  const Rule* const unsound = s.unsound_rule();
  if (const Rule* const broken = unsound != nullptr ? unsound : s.broken_rule())
    return no_checkpoint(fmt::format("is inconsistent: this must hold: {}", broken->text));
  if (seams.connector != nullptr) seams.connector->bind(**made);
  if (seams.calls != nullptr) seams.calls->bind(**made);
  return made;
}

}  // namespace quire
