#pragma once
#include <string_view>

namespace quire {

// Identifies the bits that the kernels compute, which are equal for every instruction set. It is the beginning of the SHA-256 of
// tests/golden/kernel_digests.txt, which a test compares. Data that outlives the program and depends on these bits (KV blocks on disk) is
// bound to it and to the decoder's revision. Raise the revision when the decoder starts to compute other bits.
inline constexpr std::string_view kNumericFamily = "c515b7733d77b2a7";
inline constexpr std::string_view kDecoderRevision = "1";

}  // namespace quire
