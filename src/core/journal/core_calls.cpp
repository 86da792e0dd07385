#include "quire/core_calls.h"

#include <fmt/format.h>

#include <iterator>
#include <utility>

#include "core/journal/call_bytes.h"

namespace quire {

struct CoreCallWriter::Impl final : CallSink {
  void on_call(const CoreCall& call) override { write_call(out, call); }
  ByteWriter out;
};

CoreCallWriter::CoreCallWriter() : impl_(std::make_unique<Impl>()) {
  impl_->out.bytes.assign(std::begin(kCallsMagic), std::end(kCallsMagic));
}
CoreCallWriter::~CoreCallWriter() = default;

CallSink& CoreCallWriter::sink() {
  return *impl_;
}

std::vector<std::uint8_t> CoreCallWriter::take() {
  return std::exchange(impl_->out.bytes, {});
}

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
    return fail(ErrorCode::invalid_argument, "calls", fmt::format("the data from byte {} on is not a valid call", in.position()),
                "use calls written by a CoreCallWriter of this version");
  }
  return true;
}

const StepPlan* CoreCallReader::play(Core& core) {
  return quire::play(impl_->call.call(), core);
}

}  // namespace quire
