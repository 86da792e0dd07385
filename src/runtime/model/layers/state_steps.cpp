#include "runtime/model/layers/state_steps.h"

#include <algorithm>

namespace quire {

void run_conv(Pass& pass, const LayerCache& cache, const LayerConfig& config, const LayerWeights& weights, float* x, std::size_t stride) {
  constexpr std::uint32_t kChannels = 128;  // channels of a part
  const std::uint32_t channels = config.conv_channels(), taps = config.state.conv_taps;
  const std::uint32_t parts = (channels + kChannels - 1) / kChannels;
  for_state_steps(pass, cache, parts, kChannels * (taps + 1), [&](const StateStep& step, std::uint32_t part, float* from, float* to) {
    float* rows = x + step.row * stride;
    const ConvRun run{.x = rows,
                      .x_stride = stride,
                      .out = rows,
                      .out_stride = stride,
                      .weights = weights.conv_weights.data(),
                      .bias = weights.conv_bias.empty() ? nullptr : weights.conv_bias.data(),
                      .before = from,
                      .after = to,
                      .channels = channels,
                      .rows = step.rows,
                      .taps = taps,
                      .silu = config.state.kind != StateKind::short_conv};
    pass.kernels.causal_conv(run, part * kChannels, std::min(channels, (part + 1) * kChannels));
  });
}

}  // namespace quire
