#pragma once
// One pair of functions per format, each around the library that reads it. The size has been looked at when pixels are asked for.
#include <cstddef>
#include <cstdint>
#include <span>

#include "media/picture.h"
#include "quire/base/error.h"

namespace quire {

using FileBytes = std::span<const std::byte>;

Result<PictureHead> read_png_head(FileBytes file);
Result<Picture> decode_png(FileBytes file, const PictureHead& head);
Result<PictureHead> read_jpeg_head(FileBytes file);
Result<Picture> decode_jpeg(FileBytes file, const PictureHead& head);
Result<PictureHead> read_webp_head(FileBytes file);
Result<Picture> decode_webp(FileBytes file, const PictureHead& head);
Result<PictureHead> read_gif_head(FileBytes file);
Result<Picture> decode_gif(FileBytes file, const PictureHead& head);

// All in its size, every pixel black.
Picture make_picture(const PictureHead& head);
// Red, green, blue and alpha of a row on white, as Pillow pastes them.
void lay_on_white(std::span<const std::uint8_t> rgba, std::uint8_t* rgb);

std::unexpected<Error> refuse_damaged(const char* format, const char* what);

}  // namespace quire
