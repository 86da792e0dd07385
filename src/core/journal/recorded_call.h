#pragma once
// One call as it was written: read, told again, made again.
#include <memory>

#include "core/journal/byte_form.h"
#include "quire/core.h"

namespace quire {

// Its views are into the bytes, or here until the next read().
class RecordedCall {
 public:
  RecordedCall();
  ~RecordedCall();
  RecordedCall(const RecordedCall&) = delete;
  RecordedCall& operator=(const RecordedCall&) = delete;

  // The next one. Whether it is one, `in` says; takes memory in proportion to the bytes, whatever they are.
  void read(ByteReader& in);
  // Of one that was read.
  [[nodiscard]] bool is_schedule() const;
  void tell(CallSink& sink) const;
  // Answers the plan where it was schedule(), else null.
  const StepPlan* play(Core& core) const;

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace quire
