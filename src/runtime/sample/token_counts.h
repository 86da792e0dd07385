#pragma once
// How often each token occurred in one request's prompt and output: an open-addressed table of the distinct tokens only, because a
// vocabulary-sized array per slot would cost tens of megabytes.
#include <cstdint>
#include <span>
#include <vector>

#include "quire/ids.h"

namespace quire {

class TokenCounts {
 public:
  struct Entry {
    TokenId token = -1;             // -1: free
    std::uint32_t num_outputs = 0;  // 0: in the prompt only
  };

  // Forgets everything and makes room for `num_tokens` distinct tokens without further allocation.
  void reset(std::uint32_t num_tokens);
  void add_prompt(TokenId token) { at(token); }
  void add_output(TokenId token) { ++at(token).num_outputs; }

  // Calls visit(const Entry&) once per distinct token, in no particular order.
  template <class Visit>
  void for_each(Visit&& visit) const {
    for (const Entry& entry : table_)
      if (entry.token >= 0) visit(entry);
  }
  [[nodiscard]] std::uint32_t size() const { return size_; }

 private:
  Entry& at(TokenId token);
  void grow();

  std::vector<Entry> table_;  // a power of two, at most half full
  std::uint32_t size_ = 0;
};

}  // namespace quire
