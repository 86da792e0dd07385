// Reads any bytes as a safetensors file. A file that parses is read to its last byte; otherwise there is an error.
#include <cstddef>
#include <cstdint>
#include <vector>

#include "base/check.h"
#include "format/dequant.h"
#include "format/safetensors.h"
#include "fuzz/subject.h"

static quire::test::FuzzSubject subject("a tensor with data");

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const auto file = quire::SafetensorsFile::parse(std::as_bytes(std::span(data, size)), "fuzz");
  if (!file) return 0;
  for (const quire::SafetensorsTensor& tensor : file->tensors()) {
    QUIRE_CHECK(file->find(tensor.name) != nullptr, "a tensor is not found by its name");
    const auto type = tensor.type();
    if (!type || tensor.data.empty()) continue;
    subject.reached();
    const std::uint64_t row = *quire::row_bytes(*type, tensor.columns());
    QUIRE_CHECK(row * tensor.rows() == tensor.data.size(), "shape and data disagree");
    std::vector<float> floats(tensor.columns());
    for (std::uint64_t r = 0; r < tensor.rows(); ++r) quire::dequantise_row(*type, tensor.data.subspan(r * row, row), floats);
  }
  return 0;
}
