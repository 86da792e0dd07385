#pragma once
#include <string_view>

namespace quire {

// Which bits the kernels give, the same for every instruction set: the beginning of the SHA-256 of tests/golden/kernel_digests.txt, which a
// test compares. What outlives the program and depends on those bits (KV blocks on disk) is bound to it, and to the decoder's revision,
// which is to be raised where the decoder begins to compute with other bits.
inline constexpr std::string_view kNumericFamily = "c515b7733d77b2a7";
inline constexpr std::string_view kDecoderRevision = "1";

}  // namespace quire
