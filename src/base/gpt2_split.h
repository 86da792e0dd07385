#pragma once
// GPT-2's expression that cuts a text into words: GGUF names it, tokenizer.json's ByteLevel implies it.
namespace quire {

inline constexpr const char* kGpt2Split = R"('s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+)";

}  // namespace quire
