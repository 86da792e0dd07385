// Integer products with AMX tiles: one instruction multiplies 16 rows of signed activations [row][32] with unsigned codes [8][16
// outputs][4], which is the layout of panels. The exact sums of a scale group are stored to memory, loaded to vector registers and scaled
// there. Tile products run some groups ahead of the scaling, because tile stores have a high latency. A tile product takes as long for one
// row as for 16. Called through the table of kernels, on every thread of the pool, for disjoint panels. Integer sums are exact and the
// scaling uses the same fused multiply-adds, so the results have the bits of every other implementation.
#include "runtime/kernel/cpu/x86/vec_avx512.h"
// The headers below need the type Vec of the header above.
#include "runtime/kernel/cpu/matmul_parts.h"
#include "runtime/kernel/cpu/x86/nibbles_avx512.h"
#include "runtime/kernel/implementations.h"

namespace quire {
namespace {

constexpr std::uint32_t kStretchGroups = 24;  // groups of 32 columns whose codes and scales are unpacked once for all rows
constexpr std::uint32_t kCachedRows = 64;     // rows of activations that stay in the L2 cache while all panels are processed
constexpr std::uint32_t kRing = 4;            // scale groups with sums in memory: tile products run two ahead of the scaling

// The operand of ldtilecfg (Intel's manual): row bytes and number of rows of each tile.
struct alignas(64) TileConfig {
  std::uint8_t palette = 1;
  std::uint8_t start_row = 0;
  std::uint8_t reserved[14] = {};
  std::uint16_t row_bytes[16] = {};
  std::uint8_t rows[16] = {};
};
static_assert(sizeof(TileConfig) == 64);

template <WeightFormat kFormat>
void store_nibbles(const std::uint8_t* from, __m512i table, std::uint8_t* to) {
  __m512i codes[8];
  unpack_nibbles<kFormat>(from, table, codes);
  for (int s = 0; s < 8; ++s) _mm512_store_si512(to + 64 * s, codes[s]);
}

// Codes and scales of one panel in a stretch of columns.
struct alignas(64) Stretch {
  std::uint8_t codes[kStretchGroups][512];  // unpacked codes of 4 or 6 bits; q8 is read in place
  float scales[2 * kStretchGroups][kPanelRows];
  float minimums[2 * kStretchGroups][kPanelRows];
  const std::uint8_t* lines = nullptr;  // lines of codes
  std::size_t line_stride = 0;          // bytes from one group of 32 to the next
  std::uint32_t first_group = 0;
  std::uint32_t groups = 0;
};

// kScales: scale groups per block of 32; kHalves: int16 activations.
template <WeightFormat kFormat, int kScales, bool kHalves>
// State of one call on one thread. run() configures the tile registers as needed and releases them at its end.
class Tiles {
 public:
  Tiles(const PackedMatrix& w, const Activations& x, std::size_t y_stride) : w_(w), x_(x), y_stride_(y_stride) {}

  void run(float* y, std::uint32_t begin, std::uint32_t end) {
    const std::uint32_t all = w_.columns / kGroupColumns;
    const std::uint32_t stretches = (all + kStretchGroups - 1) / kStretchGroups;
    for (std::uint32_t tile = 0; tile < x_.rows; tile += kCachedRows) {
      const std::uint32_t row_end = x_.rows - tile < kCachedRows ? x_.rows : tile + kCachedRows;
      for (std::uint32_t panel = begin; panel < end; ++panel) {
        const std::uint32_t left = w_.rows - panel * kPanelRows;
        outputs_ = left < kPanelRows ? left : kPanelRows;
        y_ = y + std::size_t{panel} * kPanelRows;
        for (std::uint32_t s = 0; s < stretches; ++s) {
          stretch_.first_group = all * s / stretches;
          stretch_.groups = all * (s + 1) / stretches - stretch_.first_group;
          lay_out(panel);
          run_rows(tile, row_end);
        }
      }
    }
    _tile_release();
  }

 private:
  static constexpr bool kNibbles = kFormat != WeightFormat::q8;  // codes of 4 or 6 bits, which are unpacked to bytes
  static constexpr int kLines = 8 / kScales;                     // lines of codes per scale group
  static constexpr int kGroupBytes = 32 / kScales;               // bytes of activations per scale group
  static constexpr int kSums = kRowTile * kPanelRows;
  static constexpr int kParts = kHalves ? 2 : 1;
  static constexpr int kBlockBytes = kHalves ? 64 : 32;

  // Sets the shapes of the eight tiles. There are two tiles of each kind: sums (0, 1), sums of low halves (2, 3), codes (4, 5) and
  // activations (6, 7). Even scale groups use the first tile of each kind, odd scale groups the second. Tile numbers are literals below,
  // because g++ requires literals.
  void configure(std::uint32_t rows) {
    if (rows == configured_) return;
    configured_ = rows;
    TileConfig config;
    for (int t = 0; t < 8; ++t) {
      config.rows[t] = static_cast<std::uint8_t>(t == 4 || t == 5 ? kLines : rows);
      config.row_bytes[t] = t >= 6 ? kGroupBytes : 64;
    }
    _tile_loadconfig(&config);
  }

  [[gnu::noinline]] void lay_out(std::uint32_t panel) {
    const std::size_t scale_bytes = std::size_t{16} * w_.scale_bytes;
    constexpr std::size_t kCodeBytes = code_bytes(kFormat);
    const std::size_t block_bytes = kCodeBytes + kScales * scale_bytes * (w_.has_minimums ? 2 : 1);
    const std::uint8_t* start = w_.storage.data() + panel * w_.panel_bytes;
    const std::uint8_t* block = start + all_unit_bytes(w_) + stretch_.first_group * block_bytes;
    PanelScales of_panel(w_, start);
    const __m512i table = table_of(w_);
    stretch_.lines = kNibbles ? stretch_.codes[0] : block;
    stretch_.line_stride = kNibbles ? 512 : block_bytes;
    for (std::uint32_t g = 0; g < stretch_.groups; ++g, block += block_bytes) {
      // Prefetches the next panel from memory while this one is processed.
      for (std::size_t at = 0; at < block_bytes; at += 64)
        _mm_prefetch(reinterpret_cast<const char*>(block + w_.panel_bytes + at), _MM_HINT_T1);
      if constexpr (kNibbles) store_nibbles<kFormat>(block, table, stretch_.codes[g]);
      if (g == 0 || begins_units(stretch_.first_group + g)) of_panel.enter(stretch_.first_group + g);
      for (std::uint32_t i = 0; i < kScales; ++i) {
        const std::uint8_t* scales = block + kCodeBytes + i * scale_bytes;
        of_panel.scales(scales).store(stretch_.scales[kScales * g + i]);
        if (w_.has_minimums) of_panel.minimums(scales + kScales * scale_bytes).store(stretch_.minimums[kScales * g + i]);
      }
    }
  }

  void run_rows(std::uint32_t begin, std::uint32_t end) {
    for (std::uint32_t row = begin; row < end; row += kRowTile) {
      const std::uint32_t count = end - row < kRowTile ? end - row : kRowTile;
      configure(count);
      if (count > 12)
        run_tile<16>(row, count);
      else
        run_tile<12>(row, count);
    }
  }

  // Inputs and outputs of run_steps(), in which a step is the work for one scale group. Row numbers start at the first row of a tile.
  struct Steps {
    const std::int8_t* codes;       // [group][16][kBlockBytes]
    const std::uint8_t* lines;      // lines of codes of the panel
    std::size_t line_stride;        // bytes from group to group
    const float* x_scales;          // [group][16]
    const float* x_sums;            // same layout
    const std::int32_t* offsets;    // same layout
    const std::int32_t* half_sums;  // [group][16][2]
    const float* scales;            // [step][16], of the panel
    const float* minimums;          // same layout
    std::int32_t* sums;             // [kRing][halves][16][16]
  };

  // R: `count` rounded up; the results of rows from `count` on are not stored.
  template <int R>
  [[gnu::noinline]] void run_tile(std::uint32_t row, std::uint32_t count) {
    Vec acc[R];
    for (std::uint32_t r = 0; r < R; ++r)
      acc[r] = stretch_.first_group == 0 || r >= count ? Vec::zero() : Vec::load_first(y_ + (row + r) * y_stride_, outputs_);
    w_.has_minimums ? run_steps<R, true>(steps_of(row), acc) : run_steps<R, false>(steps_of(row), acc);
    for (std::uint32_t r = 0; r < R; ++r)  // up to R, so that acc stays in registers
      if (r < count) acc[r].store_first(y_ + (row + r) * y_stride_, outputs_);
  }

  Steps steps_of(std::uint32_t row) {
    const std::size_t at = x_.group_at(row, stretch_.first_group);
    return {.codes = x_.codes_at(row, stretch_.first_group, kBlockBytes),
            .lines = stretch_.lines,
            .line_stride = stretch_.line_stride,
            .x_scales = x_.scales + at,
            .x_sums = x_.sums + at,
            .offsets = x_.offsets + at,
            .half_sums = x_.half_sums + 2 * at,
            .scales = stretch_.scales[0],
            .minimums = stretch_.minimums[0],
            .sums = sums_};
  }

  // Runs two steps at a time, because even and odd steps use separate tiles.
  template <int R, bool kMinimums>
  void run_steps(const Steps& s, Vec (&acc)[R]) const {
    const std::uint32_t steps = stretch_.groups * kScales;
    multiply<0>(s, 0);
    if (steps > 1) multiply<1>(s, 1);
    std::uint32_t step = 0;
    for (; step + 3 < steps; step += 2) {
      multiply<0>(s, step + 2);
      scale<R, kMinimums>(s, step, acc);
      multiply<1>(s, step + 3);
      scale<R, kMinimums>(s, step + 1, acc);
    }
    if (step + 2 < steps) multiply<0>(s, step + 2);
    for (; step < steps; ++step) scale<R, kMinimums>(s, step, acc);
  }

  static std::int32_t* sums_of(const Steps& s, std::uint32_t step) { return s.sums + step % kRing * kParts * kSums; }

  // Computes exact dot products of a scale group with 16 rows, [row][16]; in int16 mode, the sums of the low halves follow.
  template <int kParity>
  static void multiply(const Steps& s, std::uint32_t step) {
    const std::uint32_t g = step / kScales;
    const std::uint32_t i = step % kScales;
    const std::int8_t* codes = s.codes + std::size_t{g} * kRowTile * kBlockBytes + i * kGroupBytes;
    const std::uint8_t* lines = s.lines + g * s.line_stride + std::size_t{64} * i * kLines;
    std::int32_t* sums = sums_of(s, step);
    if constexpr (kParity == 0) {
      _tile_loadd(4, lines, 64);
      _tile_loadd(6, codes, kBlockBytes);
      _tile_zero(0);
      _tile_dpbsud(0, 6, 4);
      _tile_stored(0, sums, 64);
      if constexpr (!kHalves) return;
      _tile_loadd(6, codes + 32, kBlockBytes);
      _tile_zero(2);
      _tile_dpbsud(2, 6, 4);
      _tile_stored(2, sums + kSums, 64);
    } else {
      _tile_loadd(5, lines, 64);
      _tile_loadd(7, codes, kBlockBytes);
      _tile_zero(1);
      _tile_dpbsud(1, 7, 5);
      _tile_stored(1, sums, 64);
      if constexpr (!kHalves) return;
      _tile_loadd(7, codes + 32, kBlockBytes);
      _tile_zero(3);
      _tile_dpbsud(3, 7, 5);
      _tile_stored(3, sums + kSums, 64);
    }
  }

  template <int R, bool kMinimums>
  static void scale(const Steps& s, std::uint32_t step, Vec (&acc)[R]) {
    const std::size_t at = std::size_t{step / kScales} * kRowTile;
    const std::uint32_t i = step % kScales;
    const std::int32_t* sums = sums_of(s, step);
    const Vec scales = Vec::load(s.scales + std::size_t{step} * kPanelRows);
    const Vec minimums = kMinimums ? Vec::load(s.minimums + std::size_t{step} * kPanelRows) : Vec::zero();
    for (std::uint32_t r = 0; r < R; ++r) {
      __m512i sum = _mm512_load_si512(sums + r * kPanelRows);
      if constexpr (kHalves) sum = _mm512_add_epi32(_mm512_slli_epi32(sum, 8), _mm512_load_si512(sums + kSums + r * kPanelRows));
      const std::int32_t half = kScales == 2 ? s.half_sums[2 * (at + r) + i] : 0;
      if constexpr (zero_code(kFormat) != 0)
        sum =
            _mm512_sub_epi32(sum, _mm512_set1_epi32(kScales == 2 ? zero_code(kFormat) * half : s.offsets[at + r] >> kOffsetShift<kFormat>));
      const Vec x_scale = Vec::set(s.x_scales[at + r]);
      acc[r] = Vec::fma(Vec{_mm512_cvtepi32_ps(sum)} * x_scale, scales, acc[r]);
      if constexpr (kMinimums) {
        const float x_sum = kScales == 2 ? static_cast<float>(half) * s.x_scales[at + r] : s.x_sums[at + r];
        acc[r] = Vec::fma(Vec::set(x_sum), minimums, acc[r]);
      }
    }
  }

  const PackedMatrix& w_;
  const Activations& x_;
  std::size_t y_stride_;
  float* y_ = nullptr;  // the panel's first output of row 0
  std::uint32_t outputs_ = 0;
  std::uint32_t configured_ = 0;
  alignas(64) std::int32_t sums_[std::size_t{kRing} * kParts * kSums] = {};
  Stretch stretch_;
};

template <bool kHalves>
void multiply_tiles(const PackedMatrix& w, const Activations& x, float* y, std::size_t y_stride, std::uint32_t begin, std::uint32_t end) {
  with_format(w, [&]<WeightFormat kFormat, int kScales>() { Tiles<kFormat, kScales, kHalves>(w, x, y_stride).run(y, begin, end); });
}

}  // namespace

namespace amx {

// Multiplies the last rows without tiles if at most kFewRows are left after the whole tiles, which is faster.
void matmul(const PackedMatrix& w, const Activations& x, float* y, std::size_t y_stride, std::uint32_t begin, std::uint32_t end) {
  constexpr std::uint32_t kFewRows = 8;
  check_product(w, x, end);
  const std::uint32_t rest = x.rows % kRowTile;
  const std::uint32_t in_tiles = !uses_integers(w, x) ? 0 : rest <= kFewRows ? x.rows - rest : x.rows;
  if (in_tiles > 0 && x.mode == ActivationMode::int16)
    multiply_tiles<true>(w, x.slice(0, in_tiles), y, y_stride, begin, end);
  else if (in_tiles > 0)
    multiply_tiles<false>(w, x.slice(0, in_tiles), y, y_stride, begin, end);
  if (in_tiles < x.rows) avx512_bf16::matmul(w, x.slice(in_tiles, x.rows - in_tiles), y + in_tiles * y_stride, y_stride, begin, end);
}

}  // namespace amx
}  // namespace quire
