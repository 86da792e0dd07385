#pragma once
// The arithmetic of a decoder, one implementation per instruction set behind one table of functions.
//
// Every kernel adds up each row in an order that depends only on the row: not on the batch, the chunking or the number of threads. All
// implementations of one numeric contract give the same bits (fused multiply-add where the contract says fma).
#include <cstdint>
#include <span>
#include <vector>

#include "quire/ids.h"
#include "quire/options.h"

namespace quire {

class ThreadPool;

// Kernel formats: each type of a weight file unpacks into one of these.
enum class WeightFormat : std::uint8_t {
  f32,
  bf16,
  q4,  // groups of 32 along the input: unsigned 4-bit codes, w = code * scale + minimum
  q8,  // groups of 32 (two scales per group for groups of 16): unsigned 8-bit codes, w = (code - 128) * scale + minimum
};

// A weight matrix [rows = outputs][columns = inputs] packed in panels of 16 rows. Columns must be a multiple of 32 for q4 and q8.
struct PackedMatrix {
  WeightFormat format = WeightFormat::f32;
  std::uint32_t rows = 0;
  std::uint32_t columns = 0;
  std::vector<std::uint8_t> storage;  // layout private to runtime/kernel/pack.cpp

  [[nodiscard]] std::uint64_t bytes() const { return storage.size(); }
};

}  // namespace quire
