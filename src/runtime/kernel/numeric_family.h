#pragma once
#include <string_view>

namespace quire {

// Identifies the results of the kernels bit for bit; the results are equal for every instruction set. The value is the beginning of the
// SHA-256 of tests/golden/kernel_digests.txt, and a test compares them. KV blocks on disk depend on these bits, so their fingerprint
// includes this value and the decoder's revision. Increase the revision when the decoder computes other bits with the same kernels.
inline constexpr std::string_view kNumericFamily = "c515b7733d77b2a7";
inline constexpr std::string_view kDecoderRevision = "1";

}  // namespace quire
