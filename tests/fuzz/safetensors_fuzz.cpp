// Any bytes: a file or an error. What parses is read to its last byte.
#include <cstddef>
#include <cstdint>
#include <vector>

#include "base/check.h"
#include "format/dequant.h"
#include "format/safetensors.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const auto file = quire::SafetensorsFile::parse(std::as_bytes(std::span(data, size)), "fuzz");
  if (!file) return 0;
  for (const quire::SafetensorsTensor& tensor : file->tensors()) {
    QUIRE_CHECK(file->find(tensor.name) != nullptr, "a tensor is not found by its name");
    const auto type = tensor.type();
    if (!type || tensor.data.empty()) continue;
    const std::uint64_t row = *quire::row_bytes(*type, tensor.columns());
    QUIRE_CHECK(row * tensor.rows() == tensor.data.size(), "shape and data disagree");
    std::vector<float> floats(tensor.columns());
    for (std::uint64_t r = 0; r < tensor.rows(); ++r) quire::dequantise_row(*type, tensor.data.subspan(r * row, row), floats);
  }
  return 0;
}
