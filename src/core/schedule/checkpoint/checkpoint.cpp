// A checkpoint: "QCP" and a version, a fingerprint of the configuration, the state, and a checksum over all of it.
// Written by the host between two calls; read into a core that nobody has used. The bytes may be anything: what is read takes memory as far
// as they bear it out (and, of requests that run, as far as the configuration lets them grow), and is looked over as a whole before anybody
// gets the core.
#include <fmt/format.h>

#include <iterator>
#include <utility>

#include "base/check.h"
#include "core/kv/kv_coordinator.h"
#include "core/schedule/checkpoint/checksum.h"
#include "core/schedule/checkpoint/state_form.h"
#include "core/schedule/state.h"
#include "quire/core_calls.h"

namespace quire {
namespace {

// The last one is the version: it goes up when a listed field does.
constexpr std::uint8_t kCheckpointMagic[] = {'Q', 'C', 'P', 6};
constexpr std::size_t kHeadBytes = sizeof kCheckpointMagic + 8, kSumBytes = 8;

std::unexpected<Error> no_checkpoint(std::string message) {
  return fail(ErrorCode::invalid_argument, "checkpoint", std::move(message), "give what Core::checkpoint() made, in this version");
}

std::uint64_t fixed_at(std::span<const std::uint8_t> bytes, std::size_t at) {
  QUIRE_CHECK(at <= bytes.size() && bytes.size() - at >= sizeof(std::uint64_t), "a number of eight bytes lies there");
  return ByteReader(bytes.subspan(at)).fixed();
}

Result<void> check_head(std::span<const std::uint8_t> bytes, const CoreConfig& config) {
  const auto differs = std::ranges::mismatch(bytes, kCheckpointMagic);
  if (differs.in2 != std::end(kCheckpointMagic))
    return no_checkpoint(fmt::format("is no checkpoint of a core from byte {} on", differs.in1 - bytes.begin()));
  if (bytes.size() < kHeadBytes + kSumBytes) return no_checkpoint(fmt::format("ends at byte {}, within its head", bytes.size()));
  const std::size_t end = bytes.size() - kSumBytes;
  if (checksum(bytes.first(end)) != fixed_at(bytes, end))
    return no_checkpoint(fmt::format("is damaged, or cut: the checksum at byte {} is of other bytes", end));
  if (fixed_at(bytes, sizeof kCheckpointMagic) != checksum(encode(config)))
    return fail(ErrorCode::invalid_argument, "config", "is not the one that the checkpoint was made under",
                "restore it under the same configuration, in the same version");
  return {};
}

// Most of the bytes, so that they are not moved as they grow.
std::size_t num_expected_bytes(const RequestTable& table, std::uint32_t num_blocks, std::uint32_t num_named) {
  constexpr std::size_t kPerRequest = 512, kPerBlock = 8, kPerName = sizeof(BlockHash) + sizeof(PrefixIndex::Named), kRest = 4096;
  std::size_t size = kRest + num_blocks * kPerBlock + num_named * kPerName;
  for (const auto& [id, request] : table.all())
    size += kPerRequest + request->tokens.size() * sizeof(TokenId) + request->hashes.size() * (sizeof(BlockHash) + sizeof(BlockId));
  return size;
}

}  // namespace

std::vector<std::uint8_t> Core::checkpoint(CheckpointTokens tokens, const NameKey* names) const {
  const State& s = *state_;
  StateWriter form;
  form.leaves_tokens_out = tokens == CheckpointTokens::left_out;
  form.names = names;
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
  while (form.in.position() < kHeadBytes) form.in.byte();  // checked
  State::fields(form, s);
  if (!form.in.at_end()) form.expect(false, "nothing follows");
  if (!form.is_good()) {
    return no_checkpoint(fmt::format("is no state of a core at byte {}{}{}", form.in.position(),
                                     form.why() == nullptr ? "" : ": not so that ", form.why() == nullptr ? "" : form.why()));
  }
  const Rule* const unsound = s.unsound_rule();
  if (const Rule* const broken = unsound != nullptr ? unsound : s.broken_rule())
    return no_checkpoint(fmt::format("does not agree with itself: not so that {}", broken->text));
  if (seams.connector != nullptr) seams.connector->bind(**made);
  if (seams.calls != nullptr) seams.calls->bind(**made);
  return made;
}

}  // namespace quire
