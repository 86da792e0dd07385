#pragma once
// The configuration of a core and the calls that it was given, as bytes. With what its seams answered (seam_record.h) they are all that its
// decisions depend on.
//
//   encode(config)  ...  Core::create(*decode_core_config(bytes), seams)
//   CoreCallWriter calls;  calls.add(request);  core.add(request);  calls.schedule(now);  core.schedule(now);  ...  calls.take()
//   CoreCallReader reader(bytes);  while (*reader.next()) if (const StepPlan* plan = reader.play(core)) ...
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "quire/api.h"
#include "quire/core.h"
#include "quire/core_config.h"
#include "quire/error.h"

namespace quire {

// Compact, with a version.
QUIRE_API std::vector<std::uint8_t> encode(const CoreConfig& config);
// Errors: `invalid_argument`, and the byte at which it is none. Takes memory in proportion to the bytes, whatever they say. Whether a core
// can be made with it, CoreConfig::validate() says.
QUIRE_API Result<CoreConfig> decode_core_config(std::span<const std::uint8_t> bytes);

// One function for each call of Core that changes it. What the core only hands through (sampling parameters) is left out.
// Called before the core is, with the same arguments, on the core's thread. Keeps its bytes until take(): it grows without bound where
// nobody takes them.
class QUIRE_API CoreCallWriter {
 public:
  CoreCallWriter();
  ~CoreCallWriter();
  CoreCallWriter(const CoreCallWriter&) = delete;
  CoreCallWriter& operator=(const CoreCallWriter&) = delete;

  // Before the core takes over prompt_storage.
  void add(const NewRequest& request, const StepInput& input = {});
  void continue_session(RequestId id, const SessionInput* input, const StepInput& now = {});
  void fork(RequestId parent, const ForkRequest& child, const StepInput& input = {});
  void schedule(const StepInput& input = {});
  void apply(const StepResult& result, const StepInput& input = {});
  void set_drafts(std::span<const Draft> drafts);
  void set_drafts_in_plan(std::span<const Draft> drafts);
  void finish(RequestId id, RequestStatus status, const StepInput& input = {});
  void forget_blocks(RequestId id);
  void reset_prefix_cache(bool preempt_running, bool reset_connector, const StepInput& input = {});
  void end_pins();
  void reset_connector_cache();
  void reset_encoder_cache();
  void set_swap_costs(const SwapCosts& costs);
  void set_pause_state(PauseState state);
  void make_stats();

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
