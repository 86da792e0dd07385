#pragma once
// What became of a request and why, as facts: what it waited for and how long, which of its tokens were found where, why the others were
// not, and who took its blocks. Gathered from the core's events where they are made; whoever shows them only words them.
//
//   Explainer explainer(ExplainOptions::of(config));
//   const auto core = Core::create(config, {.events = &explainer}).value();
//   explainer.follow(*core);
//   ...  explainer.explain(id)
#include <array>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "quire/base/api.h"
#include "quire/base/core_config.h"
#include "quire/base/events.h"
#include "quire/base/ids.h"

namespace quire {

class Core;

// Why tokens had to be computed at a request's first admission. Blocks are judged as they were when it was looked up.
enum class MissCause : std::uint8_t {
  never_stored,   // nobody has computed them, or so long ago that it is not remembered (RequestExplanation::remembered_since)
  diverged,       // what stands before them was stored, and went on otherwise
  evicted,        // stored, then needed for `by`
  forgotten,      // stored, then taken back: its content was wrong or unknown
  reset,          // stored, then all were forgotten by the host
  behind_a_miss,  // stored, but of no use without the tokens before
  last_token,     // stored, but a token must be computed to draw the next one
  other_group,    // stored in one cache group, not in another (windows, states)
  partial_block,  // behind the last full block: these are never stored
  load_failed,    // a tier had them, and they did not come
  not_looked_up   // the request, or the host, wanted no look at the cache
};
inline constexpr std::size_t kNumMissCauses = 11;
inline constexpr std::size_t kNumEventCauses = 20;

struct WaitFact {
  EventCause cause = EventCause::none;  // none: until the next step began
  double seconds = 0.0;
  std::uint64_t num_steps = 0;  // that began meanwhile and held it back for this
};

// Tokens in a row that were missed for one reason.
struct MissFact {
  MissCause cause{};
  std::uint32_t first_token = 0, num_tokens = 0;
  // evicted, forgotten, reset: of the first of them, when, and for whom (0: nobody).
  StepId step{};
  double time_s = 0.0;
  RequestId by{};
  std::string by_name{};  // its name, if it is of the same tenant; empty: of another one, or not known any more
  // diverged: the first token that differs, those of the request around it, and those that were stored from there on.
  std::optional<std::uint32_t> differs_at{};
  std::vector<TokenId> before{}, own{}, stored{};
};

struct PreemptionFact {
  StepId step{};
  double time_s = 0.0;
  EventCause cause = EventCause::none;
  RequestId by{};         // who lacked blocks; itself where it had none to take
  std::string by_name{};  // as MissFact::by_name
  std::uint32_t num_missing_blocks = 0;
  std::uint32_t num_lost_tokens = 0;  // computed, and to be computed again unless the cache still has them
};

struct RequestExplanation {
  RequestId id{};
  std::string name, tenant;  // as it came (NewRequest::name, RequestTags::tenant)
  double queued_s = 0.0;
  std::optional<double> admitted_s, ended_s;
  StepId admitted_step{};
  std::vector<WaitFact> waits;        // until the first admission, and
  std::vector<WaitFact> later_waits;  // after preemptions, or between inputs; the longest first
  RequestId behind{};                 // who was in front when it was last held back; 0: nobody is to blame
  std::string behind_name;            // as MissFact::by_name
  // At its first admission: num_tokens is the sum of the five numbers below. `shared`: from the request that it was forked from.
  std::uint32_t num_tokens = 0, num_cached = 0, num_external = 0, num_shared = 0, num_missed = 0;
  std::array<std::uint32_t, kNumMissCauses> missed{};  // by cause; their sum is num_missed
  std::vector<MissFact> misses;                        // in order; the first kMaxMissFacts
  std::uint32_t num_preemptions = 0;
  std::vector<PreemptionFact> preemptions;  // the first kMaxPreemptionFacts
  StepId remembered_since{};                // blocks that were lost before that step may be forgotten; 0: none is

  static constexpr std::size_t kMaxMissFacts = 32, kMaxPreemptionFacts = 16;
};

// Over all requests, since the start.
struct ExplainTotals {
  std::array<std::uint64_t, kNumMissCauses> missed_tokens{};
  std::array<double, kNumEventCauses> waited_s{};
  std::array<std::uint64_t, kNumEventCauses> preemptions{};
};

struct ExplainOptions {
  std::uint32_t num_ended = 1000;     // requests that are remembered when they have ended
  std::uint32_t num_blocks = 0;       // names that are remembered, cached or lost; at least twice the cache's blocks
  std::uint32_t block_size = 0;       // tokens that are found or missed as one
  std::uint32_t hash_block_size = 0;  // tokens that have a name (RequestView::block_hashes)
  // For the core of such a configuration: about 180 bytes for each of its blocks, twice, and 12 MiB.
  QUIRE_API static ExplainOptions of(const CoreConfig& config, std::uint32_t num_ended = 1000);
};

// Belongs to the core's thread, and outlives the core.
class QUIRE_API Explainer final : public EventSink {
 public:
  explicit Explainer(const ExplainOptions& options);
  ~Explainer() override;
  Explainer(const Explainer&) = delete;
  Explainer& operator=(const Explainer&) = delete;

  // Once, before the core's first call.
  void follow(const Core& core);
  void on_event(const Event& event) override;

  // As of now, or of the last event if that came later. nullopt: it is not known, or has ended so long ago that it is forgotten.
  [[nodiscard]] std::optional<RequestExplanation> explain(RequestId id, double now_s = 0.0) const;
  // Requests of that name, the oldest first.
  [[nodiscard]] std::vector<RequestId> find(std::string_view name) const;
  [[nodiscard]] const ExplainTotals& totals() const;
  // Of one that waits: for what, as the last step said; none: until the next one begins, or it does not wait.
  [[nodiscard]] EventCause waits_for(RequestId id) const;

 private:
  struct QUIRE_HIDDEN Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace quire
