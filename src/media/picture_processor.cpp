// The table of all families that are served.
#include "media/picture_processor.h"

#include <algorithm>
#include <array>

#include "media/gemma3.h"
#include "media/idefics3.h"
#include "media/llava.h"
#include "media/qwen_vl.h"

namespace quire {

const PictureProcessor* find_picture_processor(std::string_view name) {
  static constexpr std::array kProcessors{&kIdefics3, &kLlava, &kGemma3, &kQwenVl};
  const auto* const found = std::ranges::find(kProcessors, name, [](const PictureProcessor* processor) { return processor->name; });
  return found == kProcessors.end() ? nullptr : *found;
}

}  // namespace quire
