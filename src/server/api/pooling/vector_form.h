#pragma once
// What calls for vectors say in the same words: of which texts, and in which form.
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "server/answers/pooling_call.h"
#include "server/request/completion_request.h"
#include "server/request/object_reader.h"

namespace quire {

struct VectorForm {
  std::uint32_t size = 0;  // 0: all numbers
  bool normalize = true;
  bool is_base64 = false;
};

// A text, token ids, or a list of either.
std::vector<Prompt> read_input(ObjectReader& reader, std::uint32_t vocab_size);
// All but the size. `form`: what holds where they say nothing.
void read_form(ObjectReader& reader, VectorForm& form);

// Its first `size` numbers (0: all), brought to length 1 if so wanted.
PooledVector finished_vector(std::span<const float> row, std::uint32_t size, bool normalize);
// An array of numbers, or their bytes.
void append_vector(std::string& out, std::span<const float> values, bool is_base64);

}  // namespace quire
