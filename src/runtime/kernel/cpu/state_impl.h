#pragma once
// Bodies of the kernels of state.h over Vec; include a vec_*.h first. state.h has the contracts, and reference/ defines the bits. One file
// per instruction set includes this header. Called on every thread of the pool, each with separate heads or channels. The kernels allocate
// no memory, and the split of channels over threads does not change the bits.
#include <algorithm>
#include <array>

#include "runtime/kernel/cpu/vec_math.h"
#include "runtime/kernel/state.h"

namespace quire {
namespace {

Vec load_lanes(const float* p, std::uint32_t valid) {
  return valid == 16 ? Vec::load(p) : Vec::load_first(p, valid);
}

void store_lanes(Vec v, float* p, std::uint32_t valid) {
  if (valid == 16)
    v.store(p);
  else
    v.store_first(p, valid);
}

// Processes channels [at, at + valid). The inputs that the next token also needs stay in registers.
template <std::uint32_t kTaps>
void conv_lanes(const ConvRun& run, std::uint32_t at, std::uint32_t valid) {
  std::array<Vec, kTaps> weights, inputs;
  for (std::uint32_t i = 0; i < kTaps; ++i) weights[i] = load_lanes(run.weights + i * run.channels + at, valid);
  for (std::uint32_t i = 0; i + 1 < kTaps; ++i)
    inputs[i] = run.before == nullptr ? Vec::zero() : load_lanes(run.before + i * run.channels + at, valid);
  const Vec bias = run.bias == nullptr ? Vec::zero() : load_lanes(run.bias + at, valid);
  for (std::uint32_t row = 0; row < run.rows; ++row) {
    inputs[kTaps - 1] = load_lanes(run.x + row * run.x_stride + at, valid);
    Vec sum = bias;
    for (std::uint32_t i = 0; i < kTaps; ++i) sum = Vec::fma(weights[i], inputs[i], sum);
    if (run.silu) sum = sum / (Vec::set(1.0F) + exp_polynomial(sum * Vec::set(-1.0F)));
    store_lanes(sum, run.out + row * run.out_stride + at, valid);
    for (std::uint32_t i = 0; i + 1 < kTaps; ++i) inputs[i] = inputs[i + 1];
  }
  for (std::uint32_t i = 0; i + 1 < kTaps; ++i) store_lanes(inputs[i], run.after + i * run.channels + at, valid);
}

template <std::uint32_t kTaps>
void conv_channels(const ConvRun& run, std::uint32_t begin, std::uint32_t end) {
  for (std::uint32_t at = begin; at < end; at += 16) conv_lanes<kTaps>(run, at, std::min(end - at, 16U));
}

void causal_conv_impl(const ConvRun& run, std::uint32_t begin, std::uint32_t end) {
  switch (run.taps) {
    case 2:
      return conv_channels<2>(run, begin, end);
    case 3:
      return conv_channels<3>(run, begin, end);
    case 4:
      return conv_channels<4>(run, begin, end);
    case 5:
      return conv_channels<5>(run, begin, end);
    case 6:
      return conv_channels<6>(run, begin, end);
    case 7:
      return conv_channels<7>(run, begin, end);
    default:
      return conv_channels<8>(run, begin, end);
  }
}

// Processes kTokens tokens together, so that the state is read and written once for all of them. `state`: the state before the first token;
// null: zeros.
template <std::uint32_t kTokens>
void scan_tokens(const ScanRun& run, std::uint32_t first, const float* state) {
  std::array<Vec, kTokens> inputs, decays, outputs;
  std::array<const float*, kTokens> b, c;
  for (std::uint32_t t = 0; t < kTokens; ++t) {
    const std::size_t row = first + t;
    inputs[t] = Vec::set(run.steps[row * run.step_stride]) * Vec::load(run.x + row * run.stride);
    decays[t] = Vec::set(run.decays[row * run.decay_stride]);
    outputs[t] = Vec::zero();
    b[t] = run.b + row * run.group_stride;
    c[t] = run.c + row * run.group_stride;
  }
  for (std::uint32_t n = 0; n < run.size; ++n) {
    Vec h = state == nullptr ? Vec::zero() : Vec::load(state + std::size_t{n} * kScanLanes);
    for (std::uint32_t t = 0; t < kTokens; ++t) {
      h = Vec::fma(h, decays[t], Vec::set(b[t][n]) * inputs[t]);
      outputs[t] = Vec::fma(h, Vec::set(c[t][n]), outputs[t]);
    }
    h.store(run.after + std::size_t{n} * kScanLanes);
  }
  for (std::uint32_t t = 0; t < kTokens; ++t) {
    const std::size_t at = (first + t) * run.stride;
    Vec::fma(Vec::set(run.skip), Vec::load(run.x + at), outputs[t]).store(run.y + at);
  }
}

void selective_scan_impl(const ScanRun& run) {
  const float* state = run.before;
  std::uint32_t row = 0;
  for (; row + 4 <= run.rows; row += 4, state = run.after) scan_tokens<4>(run, row, state);
  for (; row < run.rows; ++row, state = run.after) scan_tokens<1>(run, row, state);
}

Vec join_chains(const std::array<Vec, 4>& sums) {
  return (sums[0] + sums[1]) + (sums[2] + sums[3]);
}

// Processes one token. `state`: the state before the token; null: zeros.
void delta_token(const DeltaRun& run, std::uint32_t row, const float* state) {
  const float* key = run.keys + row * run.group_stride;
  const float* query = run.queries + row * run.group_stride;
  const Vec decay = Vec::set(run.decays[row * run.rate_stride]);
  std::array<Vec, 4> known{Vec::zero(), Vec::zero(), Vec::zero(), Vec::zero()};
  std::array<Vec, 4> asked = known;
  for (std::uint32_t n = 0; n < run.size && state != nullptr; n += 4)
    for (std::uint32_t i = 0; i < 4; ++i)
      known[i] = Vec::fma(Vec::load(state + std::size_t{n + i} * kScanLanes), Vec::set(key[n + i]), known[i]);
  const Vec missing = Vec::load(run.v + row * run.stride) - join_chains(known) * decay;
  const Vec change = missing * Vec::set(run.rates[row * run.rate_stride]);
  for (std::uint32_t n = 0; n < run.size; n += 4)
    for (std::uint32_t i = 0; i < 4; ++i) {
      const std::size_t at = std::size_t{n + i} * kScanLanes;
      const Vec h = Vec::fma(state == nullptr ? Vec::zero() : Vec::load(state + at), decay, Vec::set(key[n + i]) * change);
      h.store(run.after + at);
      asked[i] = Vec::fma(h, Vec::set(query[n + i]), asked[i]);
    }
  join_chains(asked).store(run.y + row * run.stride);
}

void delta_rule_impl(const DeltaRun& run) {
  for (std::uint32_t row = 0; row < run.rows; ++row) delta_token(run, row, row == 0 ? run.before : run.after);
}

}  // namespace
}  // namespace quire
