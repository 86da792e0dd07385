// Decodes the first frame of a GIF onto a canvas of the size in the file's header. Called by the image decoder on any thread, with bytes
// from a client, after the canvas size has been checked. giflib reads only these bytes, and stops after the first frame.
#include <gif_lib.h>

#include <algorithm>
#include <cstring>
#include <memory>
#include <vector>

#include "media/image_formats.h"

namespace quire {
namespace {

int read_from_memory(GifFileType* gif, GifByteType* out, int count) {
  auto* rest = static_cast<FileBytes*>(gif->UserData);
  const std::size_t given = std::min(rest->size(), static_cast<std::size_t>(count));
  std::memcpy(out, rest->data(), given);
  *rest = rest->subspan(given);
  return static_cast<int>(given);
}

struct CloseGif {
  void operator()(GifFileType* gif) const { DGifCloseFile(gif, nullptr); }
};
using GifReader = std::unique_ptr<GifFileType, CloseGif>;

struct FirstFrame {
  int transparent = NO_TRANSPARENT_COLOR;
  std::vector<GifPixelType> pixels;
};

// Reads all blocks of an extension. If it is a graphic control extension, stores the index of the transparent color. Returns false on an
// error.
bool read_extension(GifFileType* gif, FirstFrame& frame) {
  int code = 0;
  GifByteType* bytes = nullptr;
  if (DGifGetExtension(gif, &code, &bytes) == GIF_ERROR) return false;
  if (code == GRAPHICS_EXT_FUNC_CODE && bytes != nullptr) {
    GraphicsControlBlock control;
    if (DGifExtensionToGCB(bytes[0], bytes + 1, &control) == GIF_OK) frame.transparent = control.TransparentColor;
  }
  while (bytes != nullptr)
    if (DGifGetExtensionNext(gif, &bytes) == GIF_ERROR) return false;
  return true;
}

// Reads up to the end of the first frame's description. Returns false if there is no frame.
bool find_frame(GifFileType* gif, FirstFrame& frame) {
  GifRecordType type = UNDEFINED_RECORD_TYPE;
  while (DGifGetRecordType(gif, &type) == GIF_OK) {
    if (type == IMAGE_DESC_RECORD_TYPE) return DGifGetImageDesc(gif) == GIF_OK;
    if (type != EXTENSION_RECORD_TYPE || !read_extension(gif, frame)) return false;
  }
  return false;
}

bool read_rows(GifFileType* gif, FirstFrame& frame) {
  const GifImageDesc& image = gif->Image;
  const auto row = [&](int y) {
    return DGifGetLine(gif, frame.pixels.data() + static_cast<std::size_t>(y) * static_cast<std::size_t>(image.Width), image.Width);
  };
  constexpr int kFirst[] = {0, 4, 2, 1}, kStep[] = {8, 8, 4, 2};
  for (int pass = 0; pass < (image.Interlace ? 4 : 1); ++pass)
    for (int y = image.Interlace ? kFirst[pass] : 0; y < image.Height; y += image.Interlace ? kStep[pass] : 1)
      if (row(y) == GIF_ERROR) return false;
  return true;
}

// Writes the color of palette entry `index`. Without a palette, indexes are shades of gray.
void write_color(const ColorMapObject* map, unsigned index, std::uint8_t* rgb) {
  const auto grey = static_cast<std::uint8_t>(index);
  GifColorType colour = {grey, grey, grey};
  if (map != nullptr) colour = index < static_cast<unsigned>(map->ColorCount) ? map->Colors[index] : GifColorType{0, 0, 0};
  rgb[0] = colour.Red;
  rgb[1] = colour.Green;
  rgb[2] = colour.Blue;
}

}  // namespace

Result<ImageHeader> read_gif_header(FileBytes file) {
  if (file.size() < 13) return corrupted_image_error("GIF", "the file is truncated");
  const auto number = [&](std::size_t at) {
    return std::to_integer<std::uint32_t>(file[at]) | std::to_integer<std::uint32_t>(file[at + 1]) << 8U;
  };
  return ImageHeader{ImageFormat::gif, number(6), number(8)};
}

Result<RgbImage> decode_gif(FileBytes file, const ImageHeader& head) {
  const GifReader gif(DGifOpen(&file, read_from_memory, nullptr));
  FirstFrame frame;
  if (gif == nullptr || !find_frame(gif.get(), frame)) return corrupted_image_error("GIF", "the file has no frame");
  const GifImageDesc& image = gif->Image;
  const auto left = static_cast<std::uint32_t>(image.Left), top = static_cast<std::uint32_t>(image.Top);
  const auto width = static_cast<std::uint32_t>(image.Width), height = static_cast<std::uint32_t>(image.Height);
  if (width == 0 || height == 0 || left + width > head.width || top + height > head.height)
    return corrupted_image_error("GIF", "the first frame lies outside the image");
  frame.pixels.resize(std::size_t{width} * height);
  if (!read_rows(gif.get(), frame)) return corrupted_image_error("GIF", "the file is truncated");
  const ColorMapObject* map = image.ColorMap != nullptr ? image.ColorMap : gif->SColorMap;
  RgbImage canvas = make_black_image(head);
  const auto around = static_cast<unsigned>(std::max(frame.transparent, 0));
  for (std::size_t i = 0; i < canvas.rgb.size(); i += 3) write_color(map, around, canvas.rgb.data() + i);
  for (std::size_t y = 0; y < height; ++y)
    for (std::size_t x = 0; x < width; ++x)
      write_color(map, frame.pixels[y * width + x], canvas.rgb.data() + 3 * ((top + y) * head.width + left + x));
  return canvas;
}

}  // namespace quire
