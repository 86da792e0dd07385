#pragma once
// Byte format of a core's calls: the kind of the call (its index in CoreCall, starting with 1) and its fields (call_fields.h).
#include <cstdint>
#include <memory>

#include "core/journal/byte_stream.h"
#include "quire/core_call.h"

namespace quire {

// The first bytes of a record of calls. The last one is the version.
inline constexpr std::uint8_t kCallsMagic[] = {'Q', 'C', 'C', 7};

// Appends the call. Copies its arguments, so they need not outlive this function.
void write_call(ByteWriter& out, const CoreCall& call);

// A call that was read. Its views refer to the input, or to this object until the next read().
class RecordedCall {
 public:
  RecordedCall();
  ~RecordedCall();
  RecordedCall(const RecordedCall&) = delete;
  RecordedCall& operator=(const RecordedCall&) = delete;

  // Reads the next call; `in` reports whether it is valid. The memory it allocates is bounded by the size of the input.
  void read(ByteReader& in);
  // Returns the call. Requires a successful read().
  [[nodiscard]] const CoreCall& call() const;

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace quire
