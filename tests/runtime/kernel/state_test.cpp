// Tests recurrences: all tables have the bits of the reference kernels, the values of a naive model, and runs may be split anywhere.
#include "runtime/kernel/state.h"

#include <algorithm>
#include <cmath>

#include "runtime/kernel/kernel_fixtures.h"

namespace quire {
namespace {

using namespace kernel_test;

struct ConvCase {
  std::uint32_t channels, rows, taps;
  bool silu, has_bias;
};

std::vector<ConvCase> conv_cases() {
  std::vector<ConvCase> cases;
  for (const std::uint32_t channels : {1U, 15U, 16U, 33U, 128U, 300U})
    for (std::uint32_t taps = 2; taps <= kMaxConvTaps; ++taps) {
      const std::uint32_t rows = 1 + (channels + taps) % 11;
      cases.push_back({channels, rows, taps, taps % 2 == 0, taps % 3 == 0});
    }
  return cases;
}

struct ConvData {
  ConvData(Rng& rng, const ConvCase& c)
      : x(random_floats(rng, std::size_t{c.rows} * (c.channels + 3))),
        weights(random_floats(rng, std::size_t{c.taps} * c.channels)),
        bias(random_floats(rng, c.channels)),
        before(random_floats(rng, std::size_t{c.taps - 1} * c.channels)) {}
  std::vector<float> x, weights, bias, before;
};

struct ConvOut {
  std::vector<float> out, after;
};

// Runs in pieces of `piece` rows; `in_place` overwrites the inputs.
ConvOut convolve(const Kernels& kernels, const ConvCase& c, const ConvData& data, std::uint32_t piece, bool begins, bool in_place) {
  ConvOut result{.out = in_place ? data.x : std::vector<float>(data.x.size(), 7.0F), .after = data.before};
  const std::size_t stride = c.channels + 3;
  for (std::uint32_t done = 0; done < c.rows; done += piece) {
    ConvRun run{.x = (in_place ? result.out : data.x).data() + done * stride,
                .x_stride = stride,
                .out = result.out.data() + done * stride,
                .out_stride = stride,
                .weights = data.weights.data(),
                .bias = c.has_bias ? data.bias.data() : nullptr,
                .before = begins && done == 0 ? nullptr : result.after.data(),
                .after = result.after.data(),
                .channels = c.channels,
                .rows = std::min(piece, c.rows - done),
                .taps = c.taps,
                .silu = c.silu};
    const std::uint32_t middle = c.channels / 2 / 16 * 16;
    kernels.causal_conv(run, middle, c.channels);
    kernels.causal_conv(run, 0, middle);
  }
  return result;
}

TEST(CausalConv, EveryTableHasTheBitsOfTheReferenceForAnySplit) {
  Rng rng(71);
  for (const ConvCase& c : conv_cases()) {
    const ConvData data(rng, c);
    for (const bool begins : {false, true}) {
      const ConvOut plain = convolve(select_kernels(KernelIsa::reference), c, data, c.rows, begins, false);
      for (const Kernels* kernels : available_kernels())
        for (const std::uint32_t piece : {1U, 2U, 5U, c.rows})
          for (const bool in_place : {false, true}) {
            ConvOut got = convolve(*kernels, c, data, piece, begins, in_place);
            for (std::size_t row = 0; row < c.rows; ++row)  // the gap between rows is undefined
              for (std::size_t i = 0; i < 3; ++i)
                got.out[row * (c.channels + 3) + c.channels + i] = plain.out[row * (c.channels + 3) + c.channels + i];
            ASSERT_TRUE(same_bits(got.out, plain.out)) << kernels->name << ", " << c.channels << " channels, " << c.taps << " taps";
            ASSERT_TRUE(same_bits(got.after, plain.after)) << kernels->name << ", " << c.channels << " channels, " << c.taps << " taps";
          }
    }
  }
}

TEST(CausalConv, IsCloseToDoublePrecision) {
  Rng rng(72);
  for (const ConvCase& c : conv_cases()) {
    const ConvData data(rng, c);
    const ConvOut got = convolve(select_kernels(KernelIsa::best), c, data, c.rows, false, false);
    const auto input = [&](std::int64_t row, std::uint32_t channel) -> double {
      if (row >= 0) return data.x[static_cast<std::size_t>(row) * (c.channels + 3) + channel];
      return data.before[static_cast<std::size_t>(row + c.taps - 1) * c.channels + channel];
    };
    for (std::uint32_t row = 0; row < c.rows; ++row)
      for (std::uint32_t channel = 0; channel < c.channels; ++channel) {
        double sum = c.has_bias ? data.bias[channel] : 0.0;
        for (std::uint32_t tap = 0; tap < c.taps; ++tap)
          sum += double{data.weights[tap * std::size_t{c.channels} + channel]} * input(std::int64_t{row} + tap + 1 - c.taps, channel);
        if (c.silu) sum /= 1.0 + std::exp(-sum);
        ASSERT_NEAR(got.out[row * (c.channels + 3) + channel], sum, 1e-5);
      }
    for (std::uint32_t tap = 0; tap + 1 < c.taps; ++tap)
      for (std::uint32_t channel = 0; channel < c.channels; ++channel)
        ASSERT_EQ(got.after[tap * std::size_t{c.channels} + channel],
                  static_cast<float>(input(std::int64_t{c.rows} + tap + 1 - c.taps, channel)));
  }
}

struct ScanCase {
  std::uint32_t size, rows;
};

struct ScanData {
  ScanData(Rng& rng, const ScanCase& shape)
      : x(random_floats(rng, std::size_t{shape.rows} * kStride)),
        b(random_floats(rng, std::size_t{shape.rows} * (shape.size + 5))),
        c(random_floats(rng, std::size_t{shape.rows} * (shape.size + 5))),
        steps(random_floats(rng, std::size_t{shape.rows} * 2)),
        before(random_floats(rng, std::size_t{shape.size} * kScanLanes)) {
    for (float& step : steps) step = std::fabs(step) * 0.2F;
    for (const float step : steps) decays.push_back(std::exp(-step));
  }
  static constexpr std::size_t kStride = 40;
  std::vector<float> x, b, c, steps, before, decays;
};

struct ScanOut {
  std::vector<float> y, after;
};

ScanOut scan(const Kernels& kernels, const ScanCase& c, const ScanData& data, std::uint32_t piece, bool begins, bool in_place) {
  ScanOut result{.y = in_place ? data.x : std::vector<float>(data.x.size()), .after = data.before};
  for (std::uint32_t done = 0; done < c.rows; done += piece)
    kernels.selective_scan({.x = (in_place ? result.y : data.x).data() + done * ScanData::kStride,
                            .y = result.y.data() + done * ScanData::kStride,
                            .stride = ScanData::kStride,
                            .b = data.b.data() + done * std::size_t{c.size + 5},
                            .c = data.c.data() + done * std::size_t{c.size + 5},
                            .group_stride = c.size + 5,
                            .steps = data.steps.data() + done * std::size_t{2},
                            .decays = data.decays.data() + done * std::size_t{2},
                            .step_stride = 2,
                            .decay_stride = 2,
                            .before = begins && done == 0 ? nullptr : result.after.data(),
                            .after = result.after.data(),
                            .skip = 0.7F,
                            .size = c.size,
                            .rows = std::min(piece, c.rows - done)});
  // The gap between rows is undefined.
  for (std::size_t i = 0; i < result.y.size(); ++i)
    if (i % ScanData::kStride >= kScanLanes) result.y[i] = 0.0F;
  return result;
}

TEST(SelectiveScan, EveryTableHasTheBitsOfTheReferenceForAnySplit) {
  Rng rng(73);
  for (const std::uint32_t size : {1U, 3U, 16U, 24U, 128U})
    for (const std::uint32_t rows : {1U, 2U, 4U, 7U, 13U}) {
      const ScanData data(rng, {size, rows});
      for (const bool begins : {false, true}) {
        const ScanOut plain = scan(select_kernels(KernelIsa::reference), {size, rows}, data, rows, begins, false);
        for (const Kernels* kernels : available_kernels())
          for (const std::uint32_t piece : {1U, 3U, 4U, rows})
            for (const bool in_place : {false, true}) {
              const ScanOut got = scan(*kernels, {size, rows}, data, piece, begins, in_place);
              ASSERT_TRUE(same_bits(got.y, plain.y)) << kernels->name << ", size " << size << ", " << rows << " rows by " << piece;
              ASSERT_TRUE(same_bits(got.after, plain.after)) << kernels->name << ", size " << size << ", " << rows << " rows by " << piece;
            }
      }
    }
}

TEST(SelectiveScan, IsCloseToDoublePrecision) {
  Rng rng(74);
  constexpr ScanCase kCase{64, 40};
  const ScanData data(rng, kCase);
  const ScanOut got = scan(select_kernels(KernelIsa::best), kCase, data, kCase.rows, false, false);
  for (std::uint32_t lane = 0; lane < kScanLanes; ++lane) {
    std::vector<double> state(kCase.size);
    for (std::uint32_t n = 0; n < kCase.size; ++n) state[n] = data.before[n * kScanLanes + lane];
    for (std::size_t row = 0; row < kCase.rows; ++row) {
      const double x = data.x[row * ScanData::kStride + lane];
      double y = 0.7F * x;
      for (std::uint32_t n = 0; n < kCase.size; ++n) {
        const std::size_t at = row * (kCase.size + 5) + n;
        state[n] = state[n] * data.decays[2 * row] + double{data.b[at]} * data.steps[2 * row] * x;
        y += state[n] * data.c[at];
      }
      ASSERT_NEAR(got.y[row * ScanData::kStride + lane], y, 1e-4);
    }
    for (std::uint32_t n = 0; n < kCase.size; ++n) ASSERT_NEAR(got.after[n * kScanLanes + lane], state[n], 1e-5);
  }
}

struct DeltaOut {
  std::vector<float> y, after;
};

// Runs the delta rule; its keys are the scan's b, its queries c.
DeltaOut correct(const Kernels& kernels, const ScanCase& c, const ScanData& data, std::uint32_t piece, bool begins, bool in_place) {
  DeltaOut result{.y = in_place ? data.x : std::vector<float>(data.x.size()), .after = data.before};
  for (std::uint32_t done = 0; done < c.rows; done += piece)
    kernels.delta_rule({.v = (in_place ? result.y : data.x).data() + done * ScanData::kStride,
                        .y = result.y.data() + done * ScanData::kStride,
                        .stride = ScanData::kStride,
                        .queries = data.c.data() + done * std::size_t{c.size + 5},
                        .keys = data.b.data() + done * std::size_t{c.size + 5},
                        .group_stride = c.size + 5,
                        .decays = data.decays.data() + done * std::size_t{2},
                        .rates = data.steps.data() + done * std::size_t{2},
                        .rate_stride = 2,
                        .before = begins && done == 0 ? nullptr : result.after.data(),
                        .after = result.after.data(),
                        .size = c.size,
                        .rows = std::min(piece, c.rows - done)});
  for (std::size_t i = 0; i < result.y.size(); ++i)
    if (i % ScanData::kStride >= kScanLanes) result.y[i] = 0.0F;
  return result;
}

TEST(DeltaRule, EveryTableHasTheBitsOfTheReferenceForAnySplit) {
  Rng rng(75);
  for (const std::uint32_t size : {4U, 16U, 24U, 128U})
    for (const std::uint32_t rows : {1U, 2U, 5U, 12U}) {
      const ScanData data(rng, {size, rows});
      for (const bool begins : {false, true}) {
        const DeltaOut plain = correct(select_kernels(KernelIsa::reference), {size, rows}, data, rows, begins, false);
        for (const Kernels* kernels : available_kernels())
          for (const std::uint32_t piece : {1U, 3U, rows})
            for (const bool in_place : {false, true}) {
              const DeltaOut got = correct(*kernels, {size, rows}, data, piece, begins, in_place);
              ASSERT_TRUE(same_bits(got.y, plain.y)) << kernels->name << ", size " << size << ", " << rows << " rows by " << piece;
              ASSERT_TRUE(same_bits(got.after, plain.after)) << kernels->name << ", size " << size << ", " << rows << " rows by " << piece;
            }
      }
    }
}

TEST(DeltaRule, IsCloseToDoublePrecision) {
  Rng rng(76);
  constexpr ScanCase kCase{32, 30};
  ScanData data(rng, kCase);
  for (float& key : data.b) key *= 0.2F;  // a length of about 1, which the rule requires
  const DeltaOut got = correct(select_kernels(KernelIsa::best), kCase, data, kCase.rows, false, false);
  for (std::uint32_t lane = 0; lane < kScanLanes; ++lane) {
    std::vector<double> state(kCase.size);
    for (std::uint32_t n = 0; n < kCase.size; ++n) state[n] = data.before[n * kScanLanes + lane];
    for (std::size_t row = 0; row < kCase.rows; ++row) {
      const float* key = data.b.data() + row * (kCase.size + 5);
      const float* query = data.c.data() + row * (kCase.size + 5);
      double known = 0.0, asked = 0.0;
      for (std::uint32_t n = 0; n < kCase.size; ++n) known += (state[n] *= data.decays[2 * row]) * key[n];
      const double change = (data.x[row * ScanData::kStride + lane] - known) * data.steps[2 * row];
      for (std::uint32_t n = 0; n < kCase.size; ++n) asked += (state[n] += key[n] * change) * query[n];
      ASSERT_NEAR(got.y[row * ScanData::kStride + lane], asked, 1e-4);
    }
    for (std::uint32_t n = 0; n < kCase.size; ++n) ASSERT_NEAR(got.after[n * kScanLanes + lane], state[n], 1e-5);
  }
}

}  // namespace
}  // namespace quire
