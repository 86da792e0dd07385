#pragma once
// Two functions per format, which read the header and decode the image with that format's library. The size is checked before a decode
// function is called.
#include <cstddef>
#include <cstdint>
#include <span>

#include "media/image.h"
#include "quire/base/error.h"

namespace quire {

using FileBytes = std::span<const std::byte>;

Result<ImageHeader> read_png_header(FileBytes file);
Result<RgbImage> decode_png(FileBytes file, const ImageHeader& head);
Result<ImageHeader> read_jpeg_header(FileBytes file);
Result<RgbImage> decode_jpeg(FileBytes file, const ImageHeader& head);
Result<ImageHeader> read_webp_header(FileBytes file);
Result<RgbImage> decode_webp(FileBytes file, const ImageHeader& head);
Result<ImageHeader> read_gif_header(FileBytes file);
Result<RgbImage> decode_gif(FileBytes file, const ImageHeader& head);

// Returns a black image of the size that `head` states.
RgbImage make_black_image(const ImageHeader& head);
// Blends RGBA pixels onto white, as Pillow's paste does.
void blend_onto_white(std::span<const std::uint8_t> rgba, std::uint8_t* rgb);

std::unexpected<Error> corrupted_image_error(const char* format, const char* what);

}  // namespace quire
