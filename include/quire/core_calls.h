#pragma once
// The configuration of a core and the calls made to it, as bytes. Together with the answers of its seams (seam_record.h) they determine all
// its decisions.
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

// Returns the configuration in a compact form with a version.
QUIRE_API std::vector<std::uint8_t> encode(const CoreConfig& config);
// Returns the configuration that `bytes` hold. Error: `invalid_argument`, with the first wrong byte. Memory use is proportional to the size
// of `bytes`, whatever they contain. The result is not validated: call CoreConfig::validate().
QUIRE_API Result<CoreConfig> decode_core_config(std::span<const std::uint8_t> bytes);

// Writes each call that its sink receives, without the answer and without data that the core only passes through (sampling parameters). Its
// memory grows until take().
class QUIRE_API CoreCallWriter {
 public:
  CoreCallWriter();
  ~CoreCallWriter();
  CoreCallWriter(const CoreCallWriter&) = delete;
  CoreCallWriter& operator=(const CoreCallWriter&) = delete;

  // Returns the sink, for Core::create. Alternatively the caller of the core calls the sink itself, with the same arguments, before each
  // call.
  [[nodiscard]] CallSink& sink();
  // Returns the bytes written since the last take(). Concatenated parts form one record; the first part begins with a version.
  [[nodiscard]] std::vector<std::uint8_t> take();

 private:
  struct QUIRE_HIDDEN Impl;
  std::unique_ptr<Impl> impl_;
};

// Makes the calls that a writer has recorded. Views of the current call are valid until the next next().
class QUIRE_API CoreCallReader {
 public:
  // `bytes` must outlive the reader.
  explicit CoreCallReader(std::span<const std::uint8_t> bytes);
  ~CoreCallReader();
  CoreCallReader(const CoreCallReader&) = delete;
  CoreCallReader& operator=(const CoreCallReader&) = delete;

  // Reads the next call; returns false at the end. Error: `invalid_argument`, with the first wrong byte. Memory use is proportional to the
  // size of the bytes, whatever they contain.
  Result<bool> next();
  // Makes the call that was read on `core`. Returns the plan if the call was schedule(), else null. Use it only for calls that a core has
  // accepted: a call that breaks the core's rules, such as one plan too many, stops the program.
  const StepPlan* play(Core& core);

 private:
  struct QUIRE_HIDDEN Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace quire
