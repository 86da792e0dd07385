// Reads any bytes as an image. The result is an image of the size in its header, or an error. Images are then cut like for a model.
#include <cstddef>
#include <cstdint>
#include <span>

#include "base/check.h"
#include "fuzz/subject.h"
#include "media/data_url.h"
#include "media/idefics3.h"
#include "media/image.h"

namespace {

constexpr std::uint64_t kMostPixels = 1 << 18;  // of a decoded image, so that the fuzzer can try many inputs

}  // namespace

static quire::test::FuzzSubject subject("a decoded image");

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const auto file = std::as_bytes(std::span(data, size));
  (void)quire::read_data_url({reinterpret_cast<const char*>(data), size});
  const auto head = quire::read_image_header(file);
  if (!head) {
    QUIRE_CHECK(!head.error().message.empty(), "an error has a message");
    return 0;
  }
  QUIRE_CHECK(head->width > 0 && head->height > 0, "a picture has pixels");
  if (std::uint64_t{head->width} * head->height > kMostPixels) return 0;
  const auto picture = quire::decode_image(file);
  if (!picture) return 0;
  subject.reached();
  QUIRE_CHECK(picture->width == head->width && picture->height == head->height, "a picture of another size");
  QUIRE_CHECK(picture->rgb.size() == std::size_t{3} * head->width * head->height, "pixels lack");
  const quire::ImageInfo info{.processor = "idefics3", .tile_side = 16, .longest_edge = 64, .filter = 2, .mean = {}, .deviation = {}};
  const quire::TileGrid grid = quire::idefics3_grid(head->width, head->height, info);
  const quire::ImageTiles tiles = quire::idefics3_tiles(*picture, info);
  QUIRE_CHECK(tiles.count == grid.num_tiles() && tiles.rgb.size() == std::size_t{3} * 16 * 16 * tiles.count, "tiles lack");
  return 0;
}
