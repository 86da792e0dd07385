#pragma once
// The configuration of a core and the calls that it was given, as bytes. With what its seams answered (seam_record.h) they are all that its
// decisions depend on.
//
//   encode(config)  ...  Core::create(*decode_core_config(bytes), seams)
//   CoreCallWriter calls;  Core::create(config, {.calls = &calls.sink()});  ...  calls.take()
//   CoreCallReader reader(bytes);  while (*reader.next()) if (const StepPlan* plan = reader.play(core)) ...
//
// Functions without state, on any thread; a writer is told on its core's thread, a reader belongs to one thread.
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "quire/base/api.h"
#include "quire/base/core_config.h"
#include "quire/base/error.h"
#include "quire/core.h"

namespace quire {

// Compact, with a version.
QUIRE_API std::vector<std::uint8_t> encode(const CoreConfig& config);
// Errors: `invalid_argument`, and the byte at which it is none. Takes memory in proportion to the bytes, whatever they say. Whether a core
// can be made with it, CoreConfig::validate() says.
QUIRE_API Result<CoreConfig> decode_core_config(std::span<const std::uint8_t> bytes);

// Writes what is told to its sink: each call, without its answer and without what the core only hands through (sampling parameters).
// Keeps its bytes until take(): it grows without bound where nobody takes them.
class QUIRE_API CoreCallWriter {
 public:
  CoreCallWriter();
  ~CoreCallWriter();
  CoreCallWriter(const CoreCallWriter&) = delete;
  CoreCallWriter& operator=(const CoreCallWriter&) = delete;

  // For Core::create; or told by whoever calls the core, with the same arguments and before it does.
  [[nodiscard]] CallSink& sink();
  // What was written since the last call; parts follow each other as one. The first begins with a version.
  [[nodiscard]] std::vector<std::uint8_t> take();

 private:
  struct QUIRE_HIDDEN Impl;
  std::unique_ptr<Impl> impl_;
};

// Plays back what a writer has written. Its views (of the call that was read) are valid until the next next().
class QUIRE_API CoreCallReader {
 public:
  // The bytes outlive it.
  explicit CoreCallReader(std::span<const std::uint8_t> bytes);
  ~CoreCallReader();
  CoreCallReader(const CoreCallReader&) = delete;
  CoreCallReader& operator=(const CoreCallReader&) = delete;

  // Reads a call; false: there is none left. Errors: `invalid_argument`, and the byte at which it is none. Takes memory in proportion to
  // the bytes, whatever they say.
  Result<bool> next();
  // Makes the call that was read. Answers the plan where it was schedule(), else null. Only of calls that a core has taken: others, such as
  // one plan too many, are a host's that makes them.
  const StepPlan* play(Core& core);

 private:
  struct QUIRE_HIDDEN Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace quire
