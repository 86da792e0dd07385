// libjpeg-turbo, by its own interface: exact integer transforms and smooth upsampling, as Pillow's.
#include <turbojpeg.h>

#include <memory>
#include <string_view>

#include "media/picture_formats.h"

namespace quire {
namespace {

struct CloseJpeg {
  void operator()(void* handle) const { tjDestroy(handle); }
};
using JpegReader = std::unique_ptr<void, CloseJpeg>;

const unsigned char* bytes_of(FileBytes file) {
  return reinterpret_cast<const unsigned char*>(file.data());
}

}  // namespace

Result<PictureHead> read_jpeg_head(FileBytes file) {
  const JpegReader reader(tjInitDecompress());
  int width = 0, height = 0, sampling = 0, colours = 0;
  if (reader == nullptr) return refuse_damaged("JPEG", "no memory to read it");
  if (tjDecompressHeader3(reader.get(), bytes_of(file), file.size(), &width, &height, &sampling, &colours) != 0)
    return refuse_damaged("JPEG", tjGetErrorStr2(reader.get()));
  if (colours == TJCS_CMYK || colours == TJCS_YCCK)
    return fail(ErrorCode::unsupported, "", "is a JPEG in CMYK, whose colours depend on a printer", "convert it to RGB");
  return PictureHead{PictureFormat::jpeg, static_cast<std::uint32_t>(width), static_cast<std::uint32_t>(height)};
}

Result<Picture> decode_jpeg(FileBytes file, const PictureHead& head) {
  const JpegReader reader(tjInitDecompress());
  if (reader == nullptr) return refuse_damaged("JPEG", "no memory to read it");
  Picture picture = make_picture(head);
  // A progressive one may have any number of scans, each as much work as the picture (the bound is libjpeg-turbo's own).
  const int done = tjDecompress2(reader.get(), bytes_of(file), file.size(), picture.rgb.data(), static_cast<int>(head.width), 0,
                                 static_cast<int>(head.height), TJPF_RGB, TJFLAG_ACCURATEDCT | TJFLAG_LIMITSCANS);
  if (done == 0) return picture;
  const std::string_view problem = tjGetErrorStr2(reader.get());
  // Cameras leave bytes between segments. Any other warning is of pixels that lack (they would be grey), or stands before an error.
  if (problem.find("extraneous bytes") != std::string_view::npos || problem.find("Unknown Adobe") != std::string_view::npos) return picture;
  return refuse_damaged("JPEG", tjGetErrorStr2(reader.get()));
}

}  // namespace quire
