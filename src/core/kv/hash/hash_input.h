#pragma once
// The inputs of a request's block hashes.
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string_view>

#include "quire/base/ids.h"
#include "quire/base/multimodal.h"
#include "quire/hash_function.h"

namespace quire {

// Embeddings given instead of a prompt, row after row. Rows beyond the end of `data` are treated as absent.
struct PromptEmbeds {
  std::span<const std::byte> data;
  std::size_t bytes_per_token = 0;  // 0 if the request has no embeddings
};

// Everything on which a request's block hashes depend: its tokens, and the properties that distinguish requests with equal tokens. Contains
// views.
struct RequestContent {
  std::span<const TokenId> tokens;
  std::string_view lora_name;                     // empty for the base model
  std::span<const MultimodalFeature> multimodal;  // ascending by offset
  // Empty: no salt; only the first block's input contains it, but the other hashes depend on it through their parent.
  std::string_view cache_salt;
  PromptEmbeds prompt_embeds;
  std::string_view lora_path = {};  // hashed with tagged keys only
  bool tagged_keys = false;         // DecisionRules::tagged_keys
};

// Iterates over the full blocks of a request, beginning with block `first_block`. From block 0 on, every multimodal item is considered.
// From a later block on, only the last item is considered, as in vLLM 0.19.0, which assumes that earlier items lie before that block. With
// tagged keys, as in 0.32.0, every item is always considered.
class HashInputs {
 public:
  HashInputs(const RequestContent& content, std::uint32_t block_size, std::size_t first_block);

  // Returns the next full block, or nullopt if less than a block of tokens is left. The result contains views into the content.
  std::optional<HashInput> next();

 private:
  std::span<const MultimodalFeature> items(std::size_t start, std::size_t end);

  const RequestContent& content_;
  std::size_t block_size_;
  std::size_t start_;
  std::size_t item_ = 0;  // index of the first item that may overlap the next block
};

}  // namespace quire
