// The table of all supported model families.
#include "media/image_processor.h"

#include <algorithm>
#include <array>

#include "media/gemma3.h"
#include "media/idefics3.h"
#include "media/llava.h"
#include "media/qwen_vl.h"

namespace quire {

const ImageProcessor* find_image_processor(std::string_view name) {
  static constexpr std::array kProcessors{&kIdefics3Processor, &kLlavaProcessor, &kGemma3Processor, &kQwenVlProcessor};
  const auto* const found = std::ranges::find(kProcessors, name, [](const ImageProcessor* processor) { return processor->name; });
  return found == kProcessors.end() ? nullptr : *found;
}

}  // namespace quire
