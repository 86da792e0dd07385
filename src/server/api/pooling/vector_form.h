#pragma once
// Reads fields that several pooling routes share: their texts, and the format of the vectors.
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "base/json_writer.h"
#include "server/answers/pooling_call.h"
#include "server/request/completion_request.h"
#include "server/request/object_reader.h"

namespace quire {

struct VectorForm {
  std::uint32_t size = 0;  // numbers per vector; 0: all
  bool normalize = true;
  bool is_base64 = false;
};

// Reads `input`: a text, token ids, or a list of either.
std::vector<Prompt> read_input(ObjectReader& reader, std::uint32_t vocab_size);
// Reads all fields of `form` except `size`. The initial values of `form` are the defaults.
void read_form(ObjectReader& reader, VectorForm& form);

// Returns the first `size` numbers of a row (0: all), scaled to length 1 if `normalize` is set.
PooledVector finished_vector(std::span<const float> row, std::uint32_t size, bool normalize);
// Writes an array of numbers, or the bytes of the numbers in base64.
void write_vector(JsonWriter& json, std::span<const float> values, bool is_base64);

}  // namespace quire
