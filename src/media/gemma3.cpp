// Each image is one square tile, prepared as LLaVA with SigLIP prepares it. Only the text around the embeddings differs.
#include "media/gemma3.h"

#include <string>

#include "media/llava.h"

namespace quire {
namespace {

Result<ImageShape> gemma3_shape(std::uint32_t /*width*/, std::uint32_t /*height*/, const ImageInfo& info) {
  return ImageShape{{}, 1, info.tile_side, info.tile_side, info.tile_tokens};
}

std::string gemma3_text(const ImageShape& shape, const ImageInfo& info) {
  std::string text = "\n\n<start_of_image>";
  for (std::uint64_t i = 0; i < shape.num_tokens(); ++i) text += info.place.empty() ? "<image_soft_token>" : info.place;
  return text + "<end_of_image>\n\n";
}

}  // namespace

constexpr ImageProcessor kGemma3Processor{"gemma3", "<start_of_image>", gemma3_shape, llava_tiles, gemma3_text};

}  // namespace quire
