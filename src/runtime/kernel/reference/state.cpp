#include <array>
#include <cmath>

#include "runtime/kernel/implementations.h"
#include "runtime/kernel/reference/math.h"

namespace quire::reference {

void causal_conv(const ConvRun& run, std::uint32_t begin, std::uint32_t end) {
  check_conv(run, end);
  for (std::uint32_t channel = begin; channel < end; ++channel) {
    std::array<float, kMaxConvTaps> inputs{};
    const std::uint32_t last = run.taps - 1;
    for (std::uint32_t i = 0; i < last && run.before != nullptr; ++i) inputs[i] = run.before[i * run.channels + channel];
    for (std::uint32_t row = 0; row < run.rows; ++row) {
      inputs[last] = run.x[row * run.x_stride + channel];
      float sum = run.bias == nullptr ? 0.0F : run.bias[channel];
      for (std::uint32_t i = 0; i < run.taps; ++i) sum = std::fma(run.weights[i * run.channels + channel], inputs[i], sum);
      if (run.silu) sum = sum / (1.0F + exp_polynomial(-sum));
      run.out[row * run.out_stride + channel] = sum;
      for (std::uint32_t i = 0; i < last; ++i) inputs[i] = inputs[i + 1];
    }
    for (std::uint32_t i = 0; i < last; ++i) run.after[i * run.channels + channel] = inputs[i];
  }
}

void selective_scan(const ScanRun& run) {
  check_scan(run);
  for (std::uint32_t lane = 0; lane < kScanLanes; ++lane) {
    for (std::uint32_t row = 0; row < run.rows; ++row) {
      const float* before = row == 0 ? run.before : run.after;
      const float x = run.x[row * run.stride + lane];
      const float input = run.steps[row * run.step_stride] * x;
      float y = 0.0F;
      for (std::uint32_t n = 0; n < run.size; ++n) {
        const std::size_t at = std::size_t{n} * kScanLanes + lane;
        const float h =
            std::fma(before == nullptr ? 0.0F : before[at], run.decays[row * run.decay_stride], run.b[row * run.group_stride + n] * input);
        y = std::fma(h, run.c[row * run.group_stride + n], y);
        run.after[at] = h;
      }
      run.y[row * run.stride + lane] = std::fma(run.skip, x, y);
    }
  }
}

void delta_rule(const DeltaRun& run) {
  check_delta(run);
  const auto join = [](const std::array<float, 4>& sums) { return (sums[0] + sums[1]) + (sums[2] + sums[3]); };
  for (std::uint32_t lane = 0; lane < kScanLanes; ++lane) {
    for (std::uint32_t row = 0; row < run.rows; ++row) {
      const float* before = row == 0 ? run.before : run.after;
      const float* key = run.keys + row * run.group_stride;
      const float* query = run.queries + row * run.group_stride;
      const float decay = run.decays[row * run.rate_stride];
      std::array<float, 4> known{}, asked{};
      for (std::uint32_t n = 0; n < run.size && before != nullptr; ++n)
        known[n % 4] = std::fma(before[std::size_t{n} * kScanLanes + lane], key[n], known[n % 4]);
      const float missing = run.v[row * run.stride + lane] - join(known) * decay;
      const float change = missing * run.rates[row * run.rate_stride];
      for (std::uint32_t n = 0; n < run.size; ++n) {
        const std::size_t at = std::size_t{n} * kScanLanes + lane;
        const float h = std::fma(before == nullptr ? 0.0F : before[at], decay, key[n] * change);
        asked[n % 4] = std::fma(h, query[n], asked[n % 4]);
        run.after[at] = h;
      }
      run.y[row * run.stride + lane] = join(asked);
    }
  }
}

}  // namespace quire::reference
