#pragma once
// What makes two blocks with equal tokens different: the adapter, the images behind placeholder tokens, the tenant's salt.
#include <cstdint>
#include <span>
#include <string>
#include <vector>

namespace quire {

// An image or sound whose placeholder tokens are [offset, offset + num_tokens) of the request.
struct MultimodalRange {
  std::string identifier;  // names the content, e.g. a digest of it
  std::uint32_t offset = 0;
  std::uint32_t num_tokens = 0;

  friend bool operator==(const MultimodalRange&, const MultimodalRange&) = default;
};

struct ExtraKeys {
  std::string lora_name;                    // empty: the base model
  std::vector<MultimodalRange> multimodal;  // ascending by offset
  std::string cache_salt;                   // goes into the first block only, and through the chain into all

  [[nodiscard]] bool empty() const { return lora_name.empty() && multimodal.empty() && cache_salt.empty(); }
};

}  // namespace quire
