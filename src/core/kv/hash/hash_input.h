#pragma once
// Input of a request's block hashes.
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string_view>

#include "quire/base/ids.h"
#include "quire/base/multimodal.h"
#include "quire/hash_function.h"

namespace quire {

// Embeddings given instead of a prompt, row after row. Rows past the end count as absent.
struct PromptEmbeds {
  std::span<const std::byte> data;
  std::size_t bytes_per_token = 0;  // 0: the request has none
};

// Everything that decides a request's block hashes: its tokens, and the properties that make equal tokens differ. Views.
struct RequestContent {
  std::span<const TokenId> tokens;
  std::string_view lora_name;                     // empty: the base model
  std::span<const MultimodalFeature> multimodal;  // ascending by offset
  std::string_view cache_salt;                    // empty: none; hashed into the first block only, and through the chain into all
  PromptEmbeds prompt_embeds;
  std::string_view lora_path = {};  // hashed with tagged keys only
  bool tagged_keys = false;         // DecisionRules::tagged_keys
};

// Visits the blocks of a request from block `first_block` on. From the first block every item is considered. From a later block only the
// last item is, as in vLLM 0.19.0: earlier items are assumed to lie before it. With tagged keys, as in 0.32.0, every item is.
class HashInputs {
 public:
  HashInputs(const RequestContent& content, std::uint32_t block_size, std::size_t first_block);

  // Returns the next full block, or nullopt if fewer tokens than a block are left. Views into the content.
  std::optional<HashInput> next();

 private:
  std::span<const MultimodalFeature> items(std::size_t start, std::size_t end);

  const RequestContent& content_;
  std::size_t block_size_;
  std::size_t start_;
  std::size_t item_ = 0;  // first item that may reach into the next block
};

}  // namespace quire
