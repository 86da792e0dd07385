#pragma once
// Which encoder outputs (embeddings of images, sounds) the worker keeps, and who needs them. Capacity is counted in embeddings. Decisions
// are those of vLLM V1's EncoderCacheManager and EncoderDecoderCacheManager (v0.19.0; under DecisionRules 0.32.0), side effects of the
// questions included.
//
// Identifiers may come from clients, so two items under one identifier may differ in size: an output then gives back what the item of its
// last reference takes, as in vLLM; under sizes_must_agree whoever asks for another size is to be refused before.
#include <algorithm>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

#include "base/check.h"
#include "base/rules.h"
#include "core/kv/encoder_cache_order.h"
#include "quire/base/decision_profile.h"
#include "quire/base/error.h"
#include "quire/base/ids.h"
#include "quire/base/multimodal.h"

namespace quire {

// What the cache needs of a request. `features` is ascending by offset and must not change order while the request holds references.
struct EncoderInputs {
  RequestId id;
  std::span<const MultimodalFeature> features;
};

enum class EncoderCacheMode : std::uint8_t {
  shared,           // outputs are kept by identifier and shared between requests
  encoder_decoder,  // outputs live for one step and are never found again (cross attention keeps their keys and values)
};

// Called by EncoderScheduler on the core's thread. It holds no embeddings: the worker has them, and is told by name which it may drop. Its
// questions have effects, so they are asked in vLLM's order and as often.
class EncoderCache {
 public:
  EncoderCache(EncoderCacheMode mode, std::int64_t capacity_embeds, const DecisionRules& rules = {});

  [[nodiscard]] EncoderCacheMode mode() const { return mode_; }
  [[nodiscard]] std::int64_t capacity() const { return capacity_; }
  [[nodiscard]] std::int64_t num_free() const { return num_free_; }
  // Free after evicting everything nobody refers to. Always the capacity in encoder_decoder mode.
  [[nodiscard]] std::int64_t num_freeable() const { return num_freeable_; }

  // check_and_update_cache: true if the output is cached; the request then refers to it.
  bool check_and_reference(const EncoderInputs& request, std::uint32_t input);
  // True if the item fits into what is left of the step's budget and, together with the embeddings already planned in this step, into the
  // cache; unreferenced outputs are evicted until it does, oldest first. False evicts nothing.
  bool can_allocate(const EncoderInputs& request, std::uint32_t input, std::int64_t compute_budget, std::int64_t num_planned_embeds);
  // After can_allocate said true for the same item.
  void allocate(const EncoderInputs& request, std::uint32_t input);

  // get_cached_num_encoder_embeds: the size of what is kept under this name (sizes_must_agree).
  [[nodiscard]] std::optional<std::int64_t> num_kept_embeds(std::string_view identifier) const;

  // get_cached_input_ids: clears `inputs` and fills it with the request's items that are cached, referenced or not (inputs_hold_outputs:
  // with those it holds), in the order in which vLLM walks them (that of a CPython set of small integers), which decides the order of later
  // evictions.
  void cached_inputs(const EncoderInputs& request, std::vector<std::uint32_t>& inputs);
  // free_encoder_input: the request refers to it no longer (inputs_hold_outputs: unless another input of it has the same name); without
  // references the output can be evicted.
  void release(const EncoderInputs& request, std::uint32_t input);
  // free: release of every cached item, in the order of cached_inputs.
  void release_all(const EncoderInputs& request);

  // get_freed_mm_hashes: identifiers the worker can drop, in order of eviction, since the last call (kept_outputs_stay: but for those that
  // are cached again). In encoder_decoder mode: those allocated before the previous call. Valid until the next call.
  std::span<const std::string> take_freed();

  // Forgets all outputs (the weights changed). Nothing is reported as freed: the worker learns it otherwise.
  void reset();

  // Of an output: who refers to it, ascending; and what can be evicted, oldest first. For comparisons and tests.
  [[nodiscard]] bool contains(std::string_view identifier) const { return cached_.find(identifier) != cached_.end(); }
  [[nodiscard]] std::size_t size() const { return cached_.size(); }
  [[nodiscard]] std::span<const RequestId> references(std::string_view identifier) const;
  [[nodiscard]] std::vector<std::string_view> evictable() const;
  [[nodiscard]] std::int64_t evictable_embeds(std::string_view identifier) const {
    const auto found = cached_.find(identifier);
    QUIRE_CHECK(found != cached_.end(), "asked about an output that is cached");
    return found->second.evictable_embeds;
  }
  // encoder_decoder: allocated since the last take_freed, and what the next one returns. shared: what the next one returns, and nothing.
  [[nodiscard]] std::span<const std::string> freed() const { return freed_; }
  [[nodiscard]] std::span<const std::string> to_report() const { return to_report_; }

  // Calls look(id, input) for each input by which a request holds an output (inputs_hold_outputs).
  template <class Look>
  void for_each_held(Look look) const {
    for (const auto& [id, inputs] : held_) {
      const RequestId holder = id;
      (void)inputs.any_of([&](std::uint32_t input) {
        look(holder, input);
        return false;
      });
    }
  }

  void check_invariants() const;
  // The first rule that does not hold; null: all do.
  [[nodiscard]] const Rule* broken_rule() const;

  // For checkpoints (schedule/checkpoint/state_form.h): without a name for each member it does not compile.
  template <class Form, class Self>
  static void fields(Form& form, Self& self) {
    [[maybe_unused]] auto& [mode, capacity, inputs_hold, kept_stay, sizes_agree, num_free, num_freeable, cached, held, oldest, newest,
                            freed, reported, to_report, inputs, order] = self;
    std::vector<Kept> kept;
    std::vector<std::string> in_order;
    std::vector<Held> held_inputs;
    if constexpr (!Form::kReads) {
      kept = self.to_kept();
      for (const std::string_view identifier : self.evictable()) in_order.emplace_back(identifier);
      for (const auto& [id, of_request] : held) held_inputs.emplace_back(id, of_request);
      std::ranges::sort(held_inputs, {}, &Held::first);
    }
    form(num_free, num_freeable, kept, in_order, freed, to_report, held_inputs);
    form.expect(num_free >= 0 && num_free <= kMostEmbeds && num_freeable >= 0 && num_freeable <= kMostEmbeds, "embeddings are counted");
    if constexpr (Form::kReads) {
      form.expect(self.assign(std::move(kept), in_order), "encoder outputs are kept under one name each");
      held = {held_inputs.begin(), held_inputs.end()};
    }
  }

 private:
  static constexpr std::int64_t kMostEmbeds = std::int64_t{1} << 48;  // sums of them stay numbers

  // An output, and under which name.
  struct Kept {
    std::string identifier;
    std::vector<RequestId> references;
    std::int64_t evictable_embeds = 0;

    template <class Form, class Self>
    static void fields(Form& form, Self& self) {
      auto& [identifier, references, evictable_embeds] = self;
      form(identifier, references, evictable_embeds);
    }
  };
  using Held = std::pair<RequestId, SmallIntSet>;
  [[nodiscard]] std::vector<Kept> to_kept() const;
  // False, and the cache is good for nothing: it cannot have been so.
  [[nodiscard]] bool assign(std::vector<Kept> kept, std::span<const std::string> evictable);

  struct Output {
    std::vector<RequestId> references;  // ascending, each once
    std::int64_t evictable_embeds = 0;  // what eviction gives back
    bool evictable = false;             // linked below
    Output* previous = nullptr;
    Output* next = nullptr;
    const std::string* identifier = nullptr;  // the key of its node
  };
  struct TextHash {
    using is_transparent = void;
    std::size_t operator()(std::string_view text) const noexcept { return std::hash<std::string_view>{}(text); }
  };
  // A node map: Output::identifier and the list point into nodes, which do not move when the table grows.
  using Outputs = std::unordered_map<std::string, Output, TextHash, std::equal_to<>>;

  void link(Output& output);
  void unlink(Output& output);
  void evict_oldest();
  void hold(RequestId request, std::uint32_t input);
  // Whether it holds the same output by another of its inputs.
  [[nodiscard]] bool let_go(const EncoderInputs& request, std::uint32_t input);

  EncoderCacheMode mode_;
  std::int64_t capacity_;
  bool inputs_hold_, kept_stay_, sizes_agree_;  // DecisionRules
  // Embeddings that nothing takes; and those that would be free if all that can be evicted were.
  std::int64_t num_free_;
  std::int64_t num_freeable_;
  Outputs cached_;
  std::unordered_map<RequestId, SmallIntSet> held_;  // inputs by which requests hold outputs (inputs_hold_outputs)
  Output* oldest_ = nullptr;
  Output* newest_ = nullptr;
  std::vector<std::string> freed_;      // shared: evicted since the last take; encoder_decoder: allocated since the last take
  std::vector<std::string> reported_;   // what the last take_freed returned
  std::vector<std::string> to_report_;  // encoder_decoder: what the next take_freed returns
  std::vector<std::uint32_t> inputs_;   // scratch of release_all
  SmallIntSetOrder order_;
};

struct EncoderBudget {
  std::int64_t compute_embeds = 0;  // embeddings computed in one step
  std::int64_t cache_embeds = 0;    // capacity of the cache
};

struct EncoderBudgetOptions {
  std::int64_t max_num_batched_tokens = 0;
  std::int64_t max_num_encoder_input_tokens = 0;
  std::int64_t encoder_cache_size = 0;
  bool disable_chunked_mm_input = false;
};

// compute_mm_encoder_budget: `max_tokens_per_item` has the largest item of each modality the model takes; empty: no encoder, both budgets
// 0.
Result<EncoderBudget> encoder_budget(const EncoderBudgetOptions& options, std::span<const std::int64_t> max_tokens_per_item);

}  // namespace quire
