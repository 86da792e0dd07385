// Decodes JPEG with libjpeg-turbo's native interface, with exact integer transforms and smooth upsampling, as Pillow does.
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

std::unexpected<Error> too_little_memory() {
  return fail(ErrorCode::unavailable, "", "could not be decoded: too little memory is free", "try again later");
}

const unsigned char* bytes_of(FileBytes file) {
  return reinterpret_cast<const unsigned char*>(file.data());
}

}  // namespace

Result<ImageHeader> read_jpeg_header(FileBytes file) {
  const JpegReader reader(tjInitDecompress());
  int width = 0, height = 0, sampling = 0, colours = 0;
  if (reader == nullptr) return too_little_memory();
  if (tjDecompressHeader3(reader.get(), bytes_of(file), file.size(), &width, &height, &sampling, &colours) != 0)
    return corrupted_image_error("JPEG", tjGetErrorStr2(reader.get()));
  if (colours == TJCS_CMYK || colours == TJCS_YCCK)
    return fail(ErrorCode::unsupported, "", "is a CMYK JPEG, which is not supported", "convert the image to RGB");
  return ImageHeader{ImageFormat::jpeg, static_cast<std::uint32_t>(width), static_cast<std::uint32_t>(height)};
}

Result<RgbImage> decode_jpeg(FileBytes file, const ImageHeader& head) {
  const JpegReader reader(tjInitDecompress());
  if (reader == nullptr) return too_little_memory();
  RgbImage image = make_black_image(head);
  // A progressive JPEG may have any number of scans, and each scan takes as much time as the whole image. libjpeg-turbo limits the number
  // (TJFLAG_LIMITSCANS).
  const int done = tjDecompress2(reader.get(), bytes_of(file), file.size(), image.rgb.data(), static_cast<int>(head.width), 0,
                                 static_cast<int>(head.height), TJPF_RGB, TJFLAG_ACCURATEDCT | TJFLAG_LIMITSCANS);
  if (done == 0) return image;
  const std::string_view problem = tjGetErrorStr2(reader.get());
  // Some cameras write extra bytes between segments, which is harmless. Any other warning means that pixels are missing, or precedes an
  // error.
  if (problem.find("extraneous bytes") != std::string_view::npos || problem.find("Unknown Adobe") != std::string_view::npos) return image;
  return corrupted_image_error("JPEG", tjGetErrorStr2(reader.get()));
}

}  // namespace quire
