// Reads any bytes as the second file of a model, and as its first file. The encoder's description is consistent, or there is an error.
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>

#include "base/check.h"
#include "format/gguf.h"
#include "fuzz/subject.h"
#include "runtime/model/weights/mmproj.h"

static quire::test::FuzzSubject subject("a readable image encoder");

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const auto file = quire::GgufFile::parse(std::as_bytes(std::span(data, size)));
  if (!file) return 0;
  for (const char* architecture : {"llama", "gemma3", "qwen2vl"}) {
    quire::ModelConfig decoder;
    decoder.architecture = architecture;
    decoder.hidden_size = 64;
    decoder.vocab_size = 300;
    const auto read = quire::read_mmproj(*file, *file, decoder);
    if (!read) {
      QUIRE_CHECK(!read.error().field.empty() && !read.error().message.empty(), "an error has a field and a message");
      continue;
    }
    subject.reached();
    const quire::VisionConfig& vision = read->vision;
    const quire::ImageInfo& pictures = read->pictures;
    QUIRE_CHECK(vision.head_dim() * vision.num_heads == vision.hidden_size, "an encoder that gives nothing");
    if (vision.has_grid_positions) {
      QUIRE_CHECK(vision.full_attention_layers.size() <= vision.num_layers && pictures.min_pixels <= pictures.max_pixels,
                  "an encoder of no picture");
      QUIRE_CHECK(pictures.embed_side == vision.grid_side() && pictures.tile_tokens > 0, "pictures of another encoder");
    } else {
      QUIRE_CHECK(vision.num_embeds() > 0, "an encoder that gives nothing");
      QUIRE_CHECK(pictures.tile_side == vision.image_size && pictures.tile_tokens == vision.num_embeds(), "pictures of another encoder");
    }
    QUIRE_CHECK(pictures.token >= 0 && pictures.token < 300, "a token of another vocabulary");
    for (const quire::GgufTensor& tensor : file->tensors())
      QUIRE_CHECK(tensor.name.empty() || !quire::folder_name_of(tensor, vision).empty(), "a name is lost");
  }
  return 0;
}
