#include <fmt/format.h>

#include "core/journal/call_kind.h"
#include "core/journal/recorded_call.h"
#include "quire/core_calls.h"

namespace quire {

struct CoreCallReader::Impl {
  explicit Impl(std::span<const std::uint8_t> bytes) : in(bytes) {
    for (const std::uint8_t expected : kCallsMagic)
      if (in.byte() != expected) in.fail();
  }
  ByteReader in;
  RecordedCall call;
};

CoreCallReader::CoreCallReader(std::span<const std::uint8_t> bytes) : impl_(std::make_unique<Impl>(bytes)) {}
CoreCallReader::~CoreCallReader() = default;

Result<bool> CoreCallReader::next() {
  ByteReader& in = impl_->in;
  if (!in.failed() && in.at_end()) return false;
  if (!in.failed()) impl_->call.read(in);
  if (in.failed()) {
    return fail(ErrorCode::invalid_argument, "calls", fmt::format("are no calls of a core from byte {} on", in.position()),
                "give what a CoreCallWriter has taken, in this version");
  }
  return true;
}

const StepPlan* CoreCallReader::play(Core& core) {
  return impl_->call.play(core);
}

}  // namespace quire
