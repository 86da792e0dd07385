#include "server/api/openai/routed_experts_json.h"

#include <fmt/format.h>

#include <cstddef>
#include <span>

#include "base/base64.h"

namespace quire {
namespace {

// Returns the header of an .npy file in format 1.0: magic bytes, the length of the rest, and a Python dict that is padded to a multiple of
// 64 bytes (numpy.lib.format).
std::string npy_head(std::uint64_t num_tokens, const ExpertShape& shape, bool is_wide) {
  constexpr std::size_t kAlignment = 64, kBefore = 10;
  std::string dict = fmt::format("{{'descr': '{}', 'fortran_order': False, 'shape': ({}, {}, {}), }}", is_wide ? "<u2" : "|u1", num_tokens,
                                 shape.num_layers, shape.per_layer);
  dict.append(kAlignment - 1 - (kBefore + dict.size()) % kAlignment, ' ');
  dict += '\n';
  std::string head = "\x93NUMPY";
  for (const std::size_t byte : {std::size_t{1}, std::size_t{0}, dict.size() & 0xFFU, dict.size() >> 8U}) head += static_cast<char>(byte);
  return head + dict;
}

}  // namespace

std::optional<std::string> routed_experts_text(const ReportedExperts& routed) {
  if (routed.experts.empty()) return std::nullopt;
  const bool is_wide = routed.shape.num_experts > 256;
  std::string npy = npy_head(routed.experts.size() / routed.shape.per_token(), routed.shape, is_wide);
  npy.reserve(npy.size() + routed.experts.size() * (is_wide ? 2 : 1));
  for (const std::uint16_t expert : routed.experts) {
    npy += static_cast<char>(expert & 0xFFU);
    if (is_wide) npy += static_cast<char>(expert >> 8U);
  }
  return base64_of(std::as_bytes(std::span(npy)));
}

}  // namespace quire
