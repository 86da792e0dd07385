// Reads any bytes as a GGUF file. A file that parses is read whole: each value as each type, tensors with an unpacker, and the tokenizer.
#include <cstddef>
#include <cstdint>
#include <vector>

#include "base/check.h"
#include "format/dequant.h"
#include "format/gguf.h"
#include "format/tokenizer_file.h"
#include "fuzz/subject.h"

namespace {

using quire::GgufFile;

void read_values(const GgufFile& file) {
  for (const std::string_view key : file.keys()) {
    (void)file.get<bool>(key);
    (void)file.get<std::int32_t>(key);
    (void)file.get<std::uint64_t>(key);
    (void)file.get<float>(key);
    (void)file.get<std::string>(key);
    (void)file.get_array<std::string_view>(key);
    (void)file.get_array<std::uint32_t>(key);
    (void)file.get_array<float>(key);
    (void)file.get_array<bool>(key);
  }
}

void read_tensors(const GgufFile& file, std::size_t file_bytes) {
  for (const quire::GgufTensor& tensor : file.tensors()) {
    QUIRE_CHECK(file.find_tensor(tensor.name) == &tensor, "a tensor is not found by its name");
    const std::uint64_t row = *quire::row_bytes(tensor.type, tensor.columns());
    QUIRE_CHECK(row * tensor.rows() == tensor.data.size() && tensor.data.size() <= file_bytes, "a tensor is larger than its file");
    if (!quire::unpacked_format(tensor.type)) continue;
    std::vector<float> floats(tensor.columns());
    quire::dequantise_row(tensor.type, tensor.data.first(row), floats);
  }
}

}  // namespace

static quire::test::FuzzSubject subject("a readable GGUF file");

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const auto file = GgufFile::parse(std::as_bytes(std::span(data, size)));
  if (!file) {
    QUIRE_CHECK(!file.error().message.empty(), "an error has a message");
    return 0;
  }
  subject.reached();
  read_values(*file);
  read_tensors(*file, size);
  const auto tokenizer = quire::tokenizer_from_gguf(*file);
  if (tokenizer) QUIRE_CHECK(tokenizer->types.size() == tokenizer->tokens.size(), "tokens without a type");
  return 0;
}
