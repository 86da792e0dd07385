#pragma once
// Tracks which encoder outputs (embeddings of images, audio) the worker keeps and which requests need them. The capacity is a number of
// embeddings. Decisions and the side effects of queries equal vLLM V1's EncoderCacheManager and EncoderDecoderCacheManager (v0.19.0; under
// DecisionRules 0.32.0).
//
// Identifiers may come from clients, so two items with the same identifier may differ in size. Evicting an output frees as many embeddings
// as the item that was released last has, as in vLLM. Under rejects_mismatched_encoder_sizes, the caller must refuse a request whose item
// has another size than the cached output.
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

// The part of a request that the cache needs. `features` is ascending by offset. Their order must not change while the request holds
// references.
struct EncoderInputs {
  RequestId id;
  std::span<const MultimodalFeature> features;
};

enum class EncoderCacheMode : std::uint8_t {
  shared,           // outputs are found by their identifier and shared between requests
  encoder_decoder,  // outputs live for one step and are not reused (cross-attention stores their keys and values)
};

// Called by EncoderScheduler on the core's thread. The cache contains no embeddings: the worker stores the embeddings, and receives the
// identifiers of outputs that it may free. Queries have side effects, so callers must make the same queries as vLLM, in the same order.
class EncoderCache {
 public:
  EncoderCache(EncoderCacheMode mode, std::int64_t capacity_embeds, const DecisionRules& rules = {});

  [[nodiscard]] EncoderCacheMode mode() const { return mode_; }
  [[nodiscard]] std::int64_t capacity() const { return capacity_; }
  [[nodiscard]] std::int64_t num_free() const { return num_free_; }
  // Returns the number of embeddings that are free after evicting every unreferenced output. Always equals the capacity in encoder_decoder
  // mode.
  [[nodiscard]] std::int64_t num_freeable() const { return num_freeable_; }

  // vLLM's check_and_update_cache. Returns whether the output is cached. If it is, adds the request's reference to the output.
  bool check_and_reference(const EncoderInputs& request, std::uint32_t input);
  // Returns whether the item fits into the remaining compute budget of the step and, together with the embeddings already planned in this
  // step, into the cache. To make room, evicts unreferenced outputs, oldest first. Evicts nothing if the result is false.
  bool can_allocate(const EncoderInputs& request, std::uint32_t input, std::int64_t compute_budget, std::int64_t num_planned_embeds);
  // Reserves memory for the item's output. can_allocate() must have returned true for this item before.
  void allocate(const EncoderInputs& request, std::uint32_t input);

  // vLLM's get_cached_num_encoder_embeds. Returns the number of embeddings of the output that is cached under this identifier (for
  // rejects_mismatched_encoder_sizes).
  [[nodiscard]] std::optional<std::int64_t> num_cached_embeds(std::string_view identifier) const;

  // vLLM's get_cached_input_ids. Replaces the content of `inputs` by the request's cached items, referenced or not. Under
  // encoder_outputs_held_per_input: by the items that the request holds. The order is the iteration order of vLLM's CPython set, which
  // decides the order of later evictions.
  void cached_inputs(const EncoderInputs& request, std::vector<std::uint32_t>& inputs);
  // vLLM's free_encoder_input. Removes the request's reference to the output. Under encoder_outputs_held_per_input, keeps the reference
  // while another held input of the request has the same identifier. An output without references can be evicted.
  void release(const EncoderInputs& request, std::uint32_t input);
  // vLLM's free. Releases every cached item of the request, in the order of cached_inputs().
  void release_all(const EncoderInputs& request);

  // vLLM's get_freed_mm_hashes. Returns the identifiers that the worker can drop:
  // - shared: outputs evicted since the last call, in order of eviction. Under recomputed_outputs_not_freed, without identifiers that are
  //   cached again.
  // - encoder_decoder: outputs allocated before the previous call.
  // The result is valid until the next call.
  std::span<const std::string> take_freed();

  // Removes all outputs because the weights changed. Does not report them as freed: the worker is notified separately.
  void reset();

  // For comparisons and tests. references() returns the requests of an output in ascending order; evictable() returns outputs, oldest
  // first.
  [[nodiscard]] bool contains(std::string_view identifier) const { return cached_.find(identifier) != cached_.end(); }
  [[nodiscard]] std::size_t size() const { return cached_.size(); }
  [[nodiscard]] std::span<const RequestId> references(std::string_view identifier) const;
  [[nodiscard]] std::vector<std::string_view> evictable() const;
  [[nodiscard]] std::int64_t evictable_embeds(std::string_view identifier) const {
    const auto found = cached_.find(identifier);
    QUIRE_CHECK(found != cached_.end(), "the queried output is cached");
    return found->second.evictable_embeds;
  }
  // In encoder_decoder mode, freed() returns the outputs allocated since the last take_freed(), and to_report() returns the result of the
  // next take_freed(). In shared mode, freed() returns the result of the next take_freed(), and to_report() is empty.
  [[nodiscard]] std::span<const std::string> freed() const { return freed_; }
  [[nodiscard]] std::span<const std::string> to_report() const { return to_report_; }

  // Calls look(id, input) for each input through which a request holds an output (encoder_outputs_held_per_input).
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
  // Returns the first violated rule, or null if all hold.
  [[nodiscard]] const Rule* broken_rule() const;

  // Checkpoint fields (schedule/checkpoint/state_archive.h). A new member does not compile until the structured binding names it.
  template <class Archive, class Self>
  static void fields(Archive& form, Self& self) {
    [[maybe_unused]] auto& [mode, capacity, held_per_input, recomputed_not_freed, rejects_mismatched, num_free, num_freeable, cached, held,
                            oldest, newest, freed, reported, to_report, inputs, order] = self;
    std::vector<SavedOutput> kept;
    std::vector<std::string> in_order;
    std::vector<Held> held_inputs;
    if constexpr (!Archive::kIsReading) {
      kept = self.to_saved_outputs();
      for (const std::string_view identifier : self.evictable()) in_order.emplace_back(identifier);
      for (const auto& [id, of_request] : held) held_inputs.emplace_back(id, of_request);
      std::ranges::sort(held_inputs, {}, &Held::first);
    }
    form(num_free, num_freeable, kept, in_order, freed, to_report, held_inputs);
    form.expect(num_free >= 0 && num_free <= kMaxEmbeds && num_freeable >= 0 && num_freeable <= kMaxEmbeds,
                "the numbers of embeddings are in range");
    if constexpr (Archive::kIsReading) {
      form.expect(self.assign(std::move(kept), in_order), "each encoder output has a unique identifier");
      held = {held_inputs.begin(), held_inputs.end()};
    }
  }

 private:
  static constexpr std::int64_t kMaxEmbeds = std::int64_t{1} << 48;  // keeps sums from overflowing

  // A cached output with its identifier, as a checkpoint stores it.
  struct SavedOutput {
    std::string identifier;
    std::vector<RequestId> references;
    std::int64_t evictable_embeds = 0;
  };
  using Held = std::pair<RequestId, SmallIntSet>;
  [[nodiscard]] std::vector<SavedOutput> to_saved_outputs() const;
  // Replaces the content. Returns false if the given state is impossible; the cache is then unusable.
  [[nodiscard]] bool assign(std::vector<SavedOutput> kept, std::span<const std::string> evictable);

  struct Output {
    std::vector<RequestId> references;  // ascending, without duplicates
    std::int64_t evictable_embeds = 0;  // freed by an eviction
    bool evictable = false;             // linked into the eviction list
    Output* previous = nullptr;
    Output* next = nullptr;
    const std::string* identifier = nullptr;  // key of the map node
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
  // Removes the input from the request's held inputs. Returns whether another held input of the request has the same output.
  [[nodiscard]] bool drop_reference(const EncoderInputs& request, std::uint32_t input);

  EncoderCacheMode mode_;
  std::int64_t capacity_;
  bool held_per_input_, recomputed_not_freed_, rejects_mismatched_;  // DecisionRules
  // num_free_: embeddings that are not used. num_freeable_: embeddings that are not used or belong to an evictable output.
  std::int64_t num_free_;
  std::int64_t num_freeable_;
  Outputs cached_;
  std::unordered_map<RequestId, SmallIntSet> held_;  // inputs through which requests hold outputs (encoder_outputs_held_per_input)
  Output* oldest_ = nullptr;
  Output* newest_ = nullptr;
  std::vector<std::string> freed_;      // shared: evicted since the last take_freed; encoder_decoder: allocated since then
  std::vector<std::string> reported_;   // result of the last take_freed
  std::vector<std::string> to_report_;  // encoder_decoder: result of the next take_freed
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

// vLLM's compute_mm_encoder_budget. `max_tokens_per_item` has the size of the largest item of each supported modality. If it is empty, the
// model has no encoder, and both budgets are 0.
Result<EncoderBudget> encoder_budget(const EncoderBudgetOptions& options, std::span<const std::int64_t> max_tokens_per_item);

}  // namespace quire
