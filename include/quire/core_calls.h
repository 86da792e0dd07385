#pragma once
// Encodes the configuration of a core, and the calls made to the core, as bytes. Together with the answers of the core's seams
// (seam_record.h) these bytes determine all decisions of the core.
//
//   encode(config)  ...  Core::create(*decode_core_config(bytes), seams)
//   CoreCallWriter calls;  Core::create(config, {.calls = &calls.sink()});  ...  calls.take()
//   CoreCallReader reader(bytes);  while (*reader.next()) if (const StepPlan* plan = reader.play(core)) ...
//
// The functions have no state and may be called on any thread. A writer belongs to its core's thread, a reader to one thread.
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "quire/base/api.h"
#include "quire/base/core_config.h"
#include "quire/base/error.h"
#include "quire/core.h"
#include "quire/core_call.h"

namespace quire {

// Returns the configuration as bytes, in a compact form with a version.
QUIRE_API std::vector<std::uint8_t> encode(const CoreConfig& config);
// Returns the configuration that `bytes` encode. Error: `invalid_argument`, with the position of the first wrong byte. `bytes` may be
// arbitrary: memory use is proportional to their size. The result is not validated: call CoreConfig::validate().
QUIRE_API Result<CoreConfig> decode_core_config(std::span<const std::uint8_t> bytes);

// Writes each call that its sink receives as bytes, without the answer and without data that the core only passes through (sampling
// parameters). Its memory grows until take() is called.
class QUIRE_API CoreCallWriter {
 public:
  CoreCallWriter();
  ~CoreCallWriter();
  CoreCallWriter(const CoreCallWriter&) = delete;
  CoreCallWriter& operator=(const CoreCallWriter&) = delete;

  // Returns the sink, for Core::create. Instead of passing the sink to the core, the caller of the core may call the sink itself, with the
  // same arguments, before each call of the core.
  [[nodiscard]] CallSink& sink();
  // Returns the bytes written since the last take(). Concatenated parts form one record; the first part begins with a version.
  [[nodiscard]] std::vector<std::uint8_t> take();

 private:
  struct QUIRE_HIDDEN Impl;
  std::unique_ptr<Impl> impl_;
};

// Reads the calls that a writer has recorded, and makes them on a core. Views of the current call are valid until the next call of next().
class QUIRE_API CoreCallReader {
 public:
  // `bytes` must outlive the reader.
  explicit CoreCallReader(std::span<const std::uint8_t> bytes);
  ~CoreCallReader();
  CoreCallReader(const CoreCallReader&) = delete;
  CoreCallReader& operator=(const CoreCallReader&) = delete;

  // Reads the next call. Returns false at the end. Error: `invalid_argument`, with the position of the first wrong byte. The bytes may be
  // arbitrary: memory use is proportional to their size.
  Result<bool> next();
  // Makes the call that next() has read on `core`. Returns the plan if the call was schedule(), else null. The call must be one that a core
  // has accepted: a call that breaks the core's rules, such as a schedule() beyond max_outstanding_plans, stops the program.
  const StepPlan* play(Core& core);

 private:
  struct QUIRE_HIDDEN Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace quire
