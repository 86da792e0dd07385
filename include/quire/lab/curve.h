#pragma once
// Estimates the hit rate of the prefix cache, in tokens, for other cache sizes: from an eighth to sixteen times the current size, in total
// and per tenant. The estimate uses a sample of the blocks that requests looked up and freed (docs/curve.md). It runs no request again and
// changes no decision.
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
  std::uint32_t num_blocks = 0;        // current cache size, without the null block
  std::uint32_t block_size = 0;        // number of tokens that are hit or missed together
  std::uint32_t hash_block_size = 0;   // tokens per block hash (`RequestView::block_hashes`)
  double pool_blocks_per_block = 1.0;  // pool blocks per block of tokens: one for each cache group
  std::vector<std::uint64_t> sizes{};  // cache sizes to estimate, in pool blocks, ascending; includes `num_blocks`
  std::uint32_t max_tracked = 131072;  // sampled block hashes; each takes kBytesPerHash bytes
  std::uint32_t max_tenants = 256;     // further tenants count only in the total
  double halve_after_s = 3600.0;       // interval for halving all counts, which favors recent traffic; 0: never

  static constexpr std::uint32_t kBytesPerHash = 28;   // plus rounding up to a power of two
  static constexpr std::uint32_t kStepsPerOctave = 2;  // number of sizes per factor of two
  // Returns options for a core with this configuration. The sizes are 1/8 to 16 times the core's own size, and the sizes in `more` (in
  // blocks), such as the cache together with a tier.
  QUIRE_API static CurveOptions of(const CoreConfig& config, std::uint32_t max_tracked = 131072,
                                   const std::vector<std::uint64_t>& more = {});
};

// Counts of one tenant, or of all tenants: tokens of prompts at the first admission of their requests.
struct CurveCounts {
  std::string tenant{};  // empty: all tenants, or requests without a tenant
  double num_requests = 0.0;
  double query_tokens = 0.0;         // looked up
  double found_tokens = 0.0;         // measured hits in the current cache
  double external_tokens = 0.0;      // measured hits in tiers, after the hits in the cache
  std::vector<double> hit_tokens{};  // estimated hits, one entry per size in `HitRateCurve::sizes`
};

// The counts from which the curves of a cache are computed.
struct HitRateCurve {
  std::uint32_t num_blocks = 0, block_size = 0;
  double pool_blocks_per_block = 1.0;
  std::vector<std::uint64_t> sizes{};
  double sampling_rate = 1.0;     // fraction of block hashes in the sample now
  std::uint32_t num_tracked = 0;  // sampled block hashes
  std::uint64_t num_bytes = 0;    // memory of the sampler
  double seconds = 0.0;           // duration of the counted traffic; halved whenever the counts are halved
  CurveCounts all{};
  std::vector<CurveCounts> tenants{};  // by name
};

// Returns the hit rate at each of `curve.sizes`, from 0 to 1: the measured rate at the current size plus the estimated difference between
// the sizes. The difference cancels errors that are equal at all sizes, for instance because a prefix that all clients use is not in the
// sample.
QUIRE_API std::vector<double> hit_rates(const HitRateCurve& curve, const CurveCounts& counts);

// Sizes and speeds that convert a curve to bytes and seconds.
struct CurveCosts {
  std::uint64_t block_bytes = 0;                               // size of a block of the pool
  double prefill_tokens_per_s = 0.0;                           // speed of prefill; 0: not known
  std::vector<std::pair<std::string, std::uint64_t>> named{};  // sizes with labels: "now + dram"
};

// One cache size and its effect on the counted traffic, relative to the current size. A smaller size has negative savings.
struct CurveRow {
  std::uint64_t num_blocks = 0, num_bytes = 0;
  std::string label{};                    // "now", a label from CurveCosts, or empty
  double hit_rate = 0.0;                  // fraction of prompt tokens
  double saved_tokens_per_s = 0.0;        // prompt tokens not computed, per second of traffic
  std::optional<double> saved_s_per_s{};  // prefill seconds saved per second of traffic; nullopt: prefill speed not known
};
// Returns one row per size of the curve.
QUIRE_API std::vector<CurveRow> curve_rows(const HitRateCurve& curve, const CurveCounts& counts, const CurveCosts& costs);
// Returns the row for any size, by linear interpolation between two rows; nullopt: the size is outside of the range of the rows.
QUIRE_API std::optional<CurveRow> curve_row_at(std::span<const CurveRow> rows, std::uint64_t num_blocks);
// Returns a text table with one line per row.
QUIRE_API std::string curve_table(std::span<const CurveRow> rows);

// Samples blocks from a core's events. Belongs to the core's thread and must outlive the core. Allocates all memory when it is created,
// except for the counts of a new tenant.
class QUIRE_API CurveSampler final : public EventSink {
 public:
  explicit CurveSampler(const CurveOptions& options);
  ~CurveSampler() override;
  CurveSampler(const CurveSampler&) = delete;
  CurveSampler& operator=(const CurveSampler&) = delete;

  // Reads the state of `core` for later events. Call it once, before the core's first call.
  void follow(const Core& core);
  void on_event(const Event& event) override;

  // Returns a copy of the counts. If `tenant` is given, only its counts are in the result, as `tenants[0]`, and `all` is empty.
  [[nodiscard]] HitRateCurve curve(const std::optional<std::string_view>& tenant = std::nullopt) const;

 private:
  struct QUIRE_HIDDEN Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace quire
