// Linked in builds without the image libraries. Every function returns an error.
#include "media/image_formats.h"

namespace quire {
namespace {

std::unexpected<Error> no_decoder_error() {
  return fail(ErrorCode::unsupported, "", "cannot be decoded: this build of quire does not support images",
              "build quire with libpng, libturbojpeg, libwebp and giflib (QUIRE_WITH_PICTURES, as ./dev does)");
}

}  // namespace

bool has_image_decoders() {
  return false;
}

Result<ImageHeader> read_png_header(FileBytes /*file*/) {
  return no_decoder_error();
}
Result<RgbImage> decode_png(FileBytes /*file*/, const ImageHeader& /*head*/) {
  return no_decoder_error();
}
Result<ImageHeader> read_jpeg_header(FileBytes /*file*/) {
  return no_decoder_error();
}
Result<RgbImage> decode_jpeg(FileBytes /*file*/, const ImageHeader& /*head*/) {
  return no_decoder_error();
}
Result<ImageHeader> read_webp_header(FileBytes /*file*/) {
  return no_decoder_error();
}
Result<RgbImage> decode_webp(FileBytes /*file*/, const ImageHeader& /*head*/) {
  return no_decoder_error();
}
Result<ImageHeader> read_gif_header(FileBytes /*file*/) {
  return no_decoder_error();
}
Result<RgbImage> decode_gif(FileBytes /*file*/, const ImageHeader& /*head*/) {
  return no_decoder_error();
}

}  // namespace quire
