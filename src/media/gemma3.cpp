// One square, as SigLIP takes it for LLaVA; what stands around its embeddings is Gemma's.
#include "media/gemma3.h"

#include <string>

#include "media/llava.h"

namespace quire {
namespace {

Result<PictureShape> gemma3_shape(std::uint32_t /*width*/, std::uint32_t /*height*/, const PictureInfo& info) {
  return PictureShape{{}, 1, info.tile_side, info.tile_side, info.tile_tokens};
}

std::string gemma3_text(const PictureShape& shape, const PictureInfo& info) {
  std::string text = "\n\n<start_of_image>";
  for (std::uint64_t i = 0; i < shape.num_tokens(); ++i) text += info.place.empty() ? "<image_soft_token>" : info.place;
  return text + "<end_of_image>\n\n";
}

}  // namespace

constexpr PictureProcessor kGemma3{"gemma3", "<start_of_image>", gemma3_shape, llava_tiles, gemma3_text};

}  // namespace quire
