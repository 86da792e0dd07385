// Decodes JPEG with libjpeg-turbo's own interface: exact integer transforms and smooth upsampling, as in Pillow.
#include <turbojpeg.h>

#include <memory>
#include <string_view>

#include "media/image_formats.h"

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

Result<ImageHeader> read_jpeg_header(FileBytes file) {
  const JpegReader reader(tjInitDecompress());
  int width = 0, height = 0, sampling = 0, colours = 0;
  if (reader == nullptr) return corrupted_image_error("JPEG", "memory allocation failed");
  if (tjDecompressHeader3(reader.get(), bytes_of(file), file.size(), &width, &height, &sampling, &colours) != 0)
    return corrupted_image_error("JPEG", tjGetErrorStr2(reader.get()));
  if (colours == TJCS_CMYK || colours == TJCS_YCCK)
    return fail(ErrorCode::unsupported, "", "is a CMYK JPEG, which is not supported", "convert the image to RGB");
  return ImageHeader{ImageFormat::jpeg, static_cast<std::uint32_t>(width), static_cast<std::uint32_t>(height)};
}

Result<RgbImage> decode_jpeg(FileBytes file, const ImageHeader& head) {
  const JpegReader reader(tjInitDecompress());
  if (reader == nullptr) return corrupted_image_error("JPEG", "memory allocation failed");
  RgbImage image = make_black_image(head);
  // A progressive JPEG may have any number of scans, and each scan is as much work as the whole image. The limit is libjpeg-turbo's.
  const int done = tjDecompress2(reader.get(), bytes_of(file), file.size(), image.rgb.data(), static_cast<int>(head.width), 0,
                                 static_cast<int>(head.height), TJPF_RGB, TJFLAG_ACCURATEDCT | TJFLAG_LIMITSCANS);
  if (done == 0) return image;
  const std::string_view problem = tjGetErrorStr2(reader.get());
  // Cameras leave bytes between segments. Any other warning means missing pixels, which would be gray, or comes before an error.
  if (problem.find("extraneous bytes") != std::string_view::npos || problem.find("Unknown Adobe") != std::string_view::npos) return image;
  return corrupted_image_error("JPEG", tjGetErrorStr2(reader.get()));
}

}  // namespace quire
