#include <iterator>
#include <utility>

#include "core/journal/write_call.h"
#include "quire/core_calls.h"

namespace quire {

struct CoreCallWriter::Impl {
  CallBytes calls;
};

CoreCallWriter::CoreCallWriter() : impl_(std::make_unique<Impl>()) {
  impl_->calls.out.bytes.assign(std::begin(kCallsMagic), std::end(kCallsMagic));
}
CoreCallWriter::~CoreCallWriter() = default;

CallSink& CoreCallWriter::sink() {
  return impl_->calls;
}

std::vector<std::uint8_t> CoreCallWriter::take() {
  return std::exchange(impl_->calls.out.bytes, {});
}

}  // namespace quire
