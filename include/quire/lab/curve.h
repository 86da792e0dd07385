#pragma once
// What another size of the prefix cache would have found: its hit rate, in tokens, at sizes from an eighth to sixteen times its own, for
// all and for each tenant. Estimated from a sample of the blocks that requests asked for and left behind (docs/curve.md); nothing is run
// twice, and nothing is decided here.
//
//   CurveSampler sampler(CurveOptions::of(config));
//   const auto core = Core::create(config, {.events = &sampler}).value();
//   sampler.follow(*core);
//   ...  hit_rates(sampler.curve(), sampler.curve().all)
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "quire/base/api.h"
#include "quire/base/core_config.h"
#include "quire/base/events.h"

namespace quire {

class Core;

struct CurveOptions {
  std::uint32_t num_blocks = 0;        // of the cache as it is, without the null block
  std::uint32_t block_size = 0;        // tokens that are found or missed as one
  std::uint32_t hash_block_size = 0;   // tokens that have a name (RequestView::block_hashes)
  double pool_blocks_per_block = 1.0;  // blocks of the pool that one of these takes: several cache groups take one each
  std::vector<std::uint64_t> sizes{};  // blocks of the pool, ascending; `num_blocks` is one of them
  std::uint32_t max_tracked = 131072;  // names that are followed, kBytesPerName each
  std::uint32_t max_tenants = 256;     // the next ones count only among all
  double halve_after_s = 3600.0;       // so often all counts are halved, so that the last hours count; 0: never

  static constexpr std::uint32_t kBytesPerName = 28;   // and what rounding up to a power of two takes
  static constexpr std::uint32_t kStepsPerOctave = 2;  // of sizes
  // For the core of such a configuration, with sizes from 1/8 to 16 times its own and the `more` ones (blocks: with a tier, for instance).
  QUIRE_API static CurveOptions of(const CoreConfig& config, std::uint32_t max_tracked = 131072,
                                   const std::vector<std::uint64_t>& more = {});
};

// Prompts at their first admission, in tokens.
struct CurveCounts {
  std::string tenant{};  // empty: all, or those without one
  double num_requests = 0.0;
  double query_tokens = 0.0;         // looked up
  double found_tokens = 0.0;         // of these, found in the cache as it is: measured
  double external_tokens = 0.0;      // loaded from tiers behind that: measured
  std::vector<double> hit_tokens{};  // estimated, for each of `sizes`
};

struct CacheCurve {
  std::uint32_t num_blocks = 0, block_size = 0;
  double pool_blocks_per_block = 1.0;
  std::vector<std::uint64_t> sizes{};
  double sampling_rate = 1.0;     // share of names that are followed now
  std::uint32_t num_tracked = 0;  // names
  std::uint64_t num_bytes = 0;    // memory that this takes
  double seconds = 0.0;           // over which was counted, halved where the counts were
  CurveCounts all{};
  std::vector<CurveCounts> tenants{};  // by name
};

// Per size, 0 to 1: what was measured at the cache's own size, and the estimated difference of each other size from it. What the estimate
// has wrong at all sizes alike (which of the few names that everybody asks for are in the sample) is not in the difference.
QUIRE_API std::vector<double> hit_rates(const CacheCurve& curve, const CurveCounts& counts);

// What it takes to say it in bytes and seconds.
struct CurveCosts {
  std::uint64_t block_bytes = 0;                               // of a block of the pool
  double prefill_tokens_per_s = 0.0;                           // how fast prompts are computed; 0: not known
  std::vector<std::pair<std::string, std::uint64_t>> named{};  // sizes that have a name: "now + dram"
};

// A size, and what it would do to the traffic that was counted. Against the cache as it is: of smaller sizes less than 0.
struct CurveRow {
  std::uint64_t num_blocks = 0, num_bytes = 0;
  std::string label{};                    // "now", a name of CurveCosts, or empty
  double hit_rate = 0.0;                  // of prompt tokens
  double saved_tokens_per_s = 0.0;        // of prompts, that need not be computed, per second of traffic
  std::optional<double> saved_s_per_s{};  // of prefill, per second of traffic; nullopt: it is not known how fast that is
};
QUIRE_API std::vector<CurveRow> curve_rows(const CacheCurve& curve, const CurveCounts& counts, const CurveCosts& costs);
// Of a size between two of them, on the line from one to the other; nullopt: it is smaller or larger than all.
QUIRE_API std::optional<CurveRow> curve_row_at(std::span<const CurveRow> rows, std::uint64_t num_blocks);
// For people: a line per size, and a picture.
QUIRE_API std::string curve_table(std::span<const CurveRow> rows);
QUIRE_API std::string curve_svg(std::span<const CurveRow> rows, std::string_view title);

// Belongs to the core's thread, and outlives the core. Takes all its memory at once, but for a tenant's counts when it first comes.
class QUIRE_API CurveSampler final : public EventSink {
 public:
  explicit CurveSampler(const CurveOptions& options);
  ~CurveSampler() override;
  CurveSampler(const CurveSampler&) = delete;
  CurveSampler& operator=(const CurveSampler&) = delete;

  // Once, before the core's first call.
  void follow(const Core& core);
  void on_event(const Event& event) override;

  // Copied. With a tenant: its counts alone, as `tenants[0]`, and `all` empty.
  [[nodiscard]] CacheCurve curve(const std::optional<std::string_view>& tenant = std::nullopt) const;

 private:
  struct QUIRE_HIDDEN Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace quire
