// A build without the libraries that read pictures.
#include "media/picture_formats.h"

namespace quire {
namespace {

std::unexpected<Error> refuse_all() {
  return fail(ErrorCode::unsupported, "", "cannot be read: this build of quire reads no pictures",
              "build with libpng, libturbojpeg, libwebp and giflib (QUIRE_WITH_PICTURES, as ./dev does)");
}

}  // namespace

bool has_pictures() {
  return false;
}

Result<PictureHead> read_png_head(FileBytes /*file*/) {
  return refuse_all();
}
Result<Picture> decode_png(FileBytes /*file*/, const PictureHead& /*head*/) {
  return refuse_all();
}
Result<PictureHead> read_jpeg_head(FileBytes /*file*/) {
  return refuse_all();
}
Result<Picture> decode_jpeg(FileBytes /*file*/, const PictureHead& /*head*/) {
  return refuse_all();
}
Result<PictureHead> read_webp_head(FileBytes /*file*/) {
  return refuse_all();
}
Result<Picture> decode_webp(FileBytes /*file*/, const PictureHead& /*head*/) {
  return refuse_all();
}
Result<PictureHead> read_gif_head(FileBytes /*file*/) {
  return refuse_all();
}
Result<Picture> decode_gif(FileBytes /*file*/, const PictureHead& /*head*/) {
  return refuse_all();
}

}  // namespace quire
