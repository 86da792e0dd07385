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

}  // namespace quire::reference
