#pragma once
// Explains what happened to a request: what it waited for and how long, where its tokens were found, why the other tokens were missed, and
// which request took its blocks. The results are facts from the core's events; callers put them into words.
//
//   Explainer explainer(ExplainOptions::of(config));
//   const auto core = Core::create(config, {.events = &explainer}).value();
//   explainer.follow(*core);
//   ...  explainer.explain(id)
#include <array>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "quire/base/api.h"
#include "quire/base/core_config.h"
#include "quire/base/events.h"
#include "quire/base/ids.h"

namespace quire {

class Core;

// Why tokens were computed at a request's first admission. Each block's cause depends on its state when the request was looked up.
enum class MissCause : std::uint8_t {
  never_stored,   // no request of the tenant has computed the tokens, as far as the explainer remembers (`remembered_since`)
  diverged,       // the prefix was stored, but continued with other tokens, in a request of the same tenant
  evicted,        // stored, then evicted for request `by`
  forgotten,      // stored, then removed because the content was wrong or could not be trusted
  reset,          // stored, then the host reset the cache
  behind_a_miss,  // stored, but unusable without the tokens before them
  last_token,     // stored, but one token must be computed to sample the next one
  other_group,    // stored in one cache group, not in another (windows, states)
  partial_block,  // after the last full block: partial blocks are not stored
  load_failed,    // a tier had the tokens, but the load failed
  not_looked_up   // the request or the host skipped the cache lookup
};
inline constexpr std::size_t kNumMissCauses = 11;
inline constexpr std::size_t kNumEventCauses = 20;

// One cause of waiting.
struct WaitFact {
  EventCause cause = EventCause::none;  // none: the request waited for the next step to begin
  double seconds = 0.0;
  std::uint64_t num_steps = 0;  // steps that began during the wait and did not admit the request for this cause
};

// Consecutive tokens that were missed for one cause.
struct MissFact {
  MissCause cause{};
  std::uint32_t first_token = 0, num_tokens = 0;
  // With the causes evicted, forgotten and reset: when the first of these tokens was lost, and for which request (0: for no request).
  StepId step{};
  double time_s = 0.0;
  RequestId by{};
  std::string by_name{};  // name of request `by` if both have the same tenant; empty: another tenant, or no longer known
  // With the cause diverged: the first token that differs, this request's tokens before it and from it on, and the stored tokens from it
  // on.
  std::optional<std::uint32_t> differs_at{};
  std::vector<TokenId> before{}, own{}, stored{};
};

// One preemption of a request.
struct PreemptionFact {
  StepId step{};
  double time_s = 0.0;
  EventCause cause = EventCause::none;
  RequestId by{};         // the request that needed blocks; this request itself if no other could be preempted
  std::string by_name{};  // like `MissFact::by_name`
  std::uint32_t num_missing_blocks = 0;
  bool swapped_out = false;           // the request's blocks were swapped out (`SwapOptions`) and not lost
  std::uint32_t num_lost_tokens = 0;  // computed tokens of the request, minus the tokens found when it resumes
};

// The facts about one request.
struct RequestExplanation {
  RequestId id{};
  std::string name, tenant;  // values as submitted (`NewRequest::name`, `RequestTags::tenant`)
  double queued_s = 0.0;
  std::optional<double> admitted_s, ended_s;
  StepId admitted_step{};
  std::vector<WaitFact> waits;        // until the first admission; the longest first
  std::vector<WaitFact> later_waits;  // after preemptions, or between inputs; the longest first
  RequestId blocked_by{};             // head of the queue when the queue last blocked this request; 0: no other request
  std::string blocked_by_name;        // like `MissFact::by_name`
  // At the first admission. `num_tokens` is the sum of the four other numbers. `num_shared`: tokens in blocks that the request shares with
  // the request from which it was forked.
  std::uint32_t num_tokens = 0, num_cached = 0, num_external = 0, num_shared = 0, num_missed = 0;
  std::array<std::uint32_t, kNumMissCauses> missed{};  // tokens by cause; their sum is `num_missed`
  std::vector<MissFact> misses;                        // in order; the first `kMaxMissFacts`
  std::uint32_t num_preemptions = 0;
  std::vector<PreemptionFact> preemptions;  // the first `kMaxPreemptionFacts`
  StepId remembered_since{};                // blocks that were lost before this step may be forgotten; 0: no lost block is forgotten

  static constexpr std::size_t kMaxMissFacts = 32, kMaxPreemptionFacts = 16;
};

// Totals over all requests since the start.
struct ExplainTotals {
  std::array<std::uint64_t, kNumMissCauses> missed_tokens{};
  std::array<double, kNumEventCauses> waited_s{};
  std::array<std::uint64_t, kNumEventCauses> preemptions{};
};

// Leading tokens of a prompt that are in blocks which one tenant's requests have computed or found, as far as the explainer remembers.
struct TenantPrefix {
  std::uint32_t num_cached_tokens = 0;  // in the prefix cache
  std::uint32_t num_known_tokens = 0;   // the cached tokens, and following tokens that were cached before and may be in a tier
};

struct ExplainOptions {
  std::uint32_t num_ended = 1000;     // number of ended requests to remember
  std::uint32_t num_blocks = 0;       // block hashes to remember, cached or lost; at least twice the number of blocks of the cache
  std::uint32_t block_size = 0;       // number of tokens that are hit or missed together
  std::uint32_t hash_block_size = 0;  // tokens per block hash (`RequestView::block_hashes`)
  // Returns options for a core with this configuration. The explainer then needs about 360 bytes per block of the cache, plus 12 MiB.
  QUIRE_API static ExplainOptions of(const CoreConfig& config, std::uint32_t num_ended = 1000);
};

// Collects facts from a core's events. Belongs to the core's thread and must outlive the core.
class QUIRE_API Explainer final : public EventSink {
 public:
  explicit Explainer(const ExplainOptions& options);
  ~Explainer() override;
  Explainer(const Explainer&) = delete;
  Explainer& operator=(const Explainer&) = delete;

  // Reads the state of `core` for later events. Call it once, before the core's first call.
  void follow(const Core& core);
  void on_event(const Event& event) override;

  // Returns the facts about a request at `now_s`, or at the last event if that is later. nullopt: the request is not known, or has ended
  // and was forgotten.
  [[nodiscard]] std::optional<RequestExplanation> explain(RequestId id, double now_s = 0.0) const;
  // Returns the ids of all remembered requests with this name, the oldest first.
  [[nodiscard]] std::vector<RequestId> find(std::string_view name) const;
  [[nodiscard]] const ExplainTotals& totals() const;
  // Returns how many leading tokens of a prompt the tenant's requests have computed or found. `block_hashes` has the format of
  // RequestView::block_hashes.
  [[nodiscard]] TenantPrefix tenant_prefix(std::string_view tenant, std::span<const std::uint8_t> block_hashes) const;
  // Returns the cause for which a request waits, as of the last step. EventCause::none: it waits for the next step, or does not wait.
  [[nodiscard]] EventCause waits_for(RequestId id) const;

 private:
  struct QUIRE_HIDDEN Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace quire
