#pragma once
// A core's calls as bytes: the kind of the call (its position in CoreCall, starting with 1) and its fields (call_fields.h).
#include <cstdint>
#include <memory>

#include "core/journal/byte_stream.h"
#include "quire/core_call.h"

namespace quire {

// A record of calls begins with it. The last byte is the version.
inline constexpr std::uint8_t kCallsMagic[] = {'Q', 'C', 'C', 6};

// Appends the call. Copies its arguments, so it may be used while the call is in progress.
void write_call(ByteWriter& out, const CoreCall& call);

// One call that was read. Its views point into the bytes, or into this object until the next read().
class RecordedCall {
 public:
  RecordedCall();
  ~RecordedCall();
  RecordedCall(const RecordedCall&) = delete;
  RecordedCall& operator=(const RecordedCall&) = delete;

  // Reads the next call; `in` reports whether it is valid. Takes memory in proportion to the bytes, whatever they are.
  void read(ByteReader& in);
  // Requires a call that was read.
  [[nodiscard]] const CoreCall& call() const;

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace quire
