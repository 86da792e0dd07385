#include "runtime/model/state_steps.h"

#include <algorithm>

namespace quire {

void run_conv(Pass& pass, const LayerCache& cache, const LayerWeights& weights, const ConvRun& run) {
  constexpr std::uint32_t kChannels = 128;  // of a part
  const auto channels = static_cast<std::uint32_t>(run.channels);
  const std::uint32_t parts = (channels + kChannels - 1) / kChannels;
  for_state_steps(pass, cache, parts, kChannels * (run.taps + 1), [&](const StateStep& step, std::uint32_t part, float* from, float* to) {
    ConvRun own = run;
    own.x += step.row * run.x_stride;
    own.out += step.row * run.out_stride;
    own.weights = weights.conv_weights.data();
    own.bias = weights.conv_bias.empty() ? nullptr : weights.conv_bias.data();
    own.before = from;
    own.after = to;
    own.rows = step.rows;
    pass.kernels.causal_conv(own, part * kChannels, std::min(channels, (part + 1) * kChannels));
  });
}

}  // namespace quire
