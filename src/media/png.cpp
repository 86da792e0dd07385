// Decodes PNG with libpng's older interface, because the newer one corrects gamma, which Pillow does not do. libpng reports errors by jumps
// (setjmp). A function in which libpng can report an error (the members of PngReader) therefore owns no objects; its caller owns them.
#include <png.h>

#include <csetjmp>
#include <cstring>
#include <vector>

#include "media/image_formats.h"

namespace quire {
namespace {

struct PngSource {
  FileBytes rest;
  char problem[80] = {};
  std::jmp_buf end;
};

[[noreturn]] void on_error(png_structp png, png_const_charp message) {
  auto* source = static_cast<PngSource*>(png_get_error_ptr(png));
  std::strncpy(source->problem, message, sizeof source->problem - 1);
  std::longjmp(source->end, 1);
}

void on_warning(png_structp /*png*/, png_const_charp /*message*/) {}

void read_bytes(png_structp png, png_bytep out, std::size_t count) {
  auto* source = static_cast<PngSource*>(png_get_io_ptr(png));
  if (source->rest.size() < count) png_error(png, "the file is truncated");
  std::memcpy(out, source->rest.data(), count);
  source->rest = source->rest.subspan(count);
}

// Limit of chunks without pixels (texts, profiles), which could otherwise decompress to any size.
constexpr png_alloc_size_t kMaxChunkBytes = 1U << 20U;

struct PngReader {
  explicit PngReader(FileBytes file) : source{.rest = file, .end = {}} {}
  ~PngReader() { png_destroy_read_struct(&png, &info, nullptr); }
  PngReader(const PngReader&) = delete;
  PngReader& operator=(const PngReader&) = delete;

  bool open() {
    if (setjmp(source.end) != 0) return false;
    png = png_create_read_struct(PNG_LIBPNG_VER_STRING, &source, on_error, on_warning);
    if (png == nullptr) return false;
    info = png_create_info_struct(png);
    if (info == nullptr) return false;
    png_set_user_limits(png, PNG_UINT_31_MAX, PNG_UINT_31_MAX);  // no limit here: the caller has checked the size, with a clear error
    png_set_chunk_malloc_max(png, kMaxChunkBytes);
    png_set_chunk_cache_max(png, 16);
    png_set_keep_unknown_chunks(png, PNG_HANDLE_CHUNK_NEVER, nullptr, 0);
    // A wrong checksum in a chunk that is not needed is no error, as in Pillow.
    png_set_crc_action(png, PNG_CRC_ERROR_QUIT, PNG_CRC_WARN_DISCARD);
    png_set_read_fn(png, &source, read_bytes);
    png_read_info(png, info);
    return true;
  }

  // Makes libpng expand every pixel to 3 or 4 bytes. Returns false on an error.
  bool expand() {
    if (setjmp(source.end) != 0) return false;
    const png_byte colours = png_get_color_type(png, info);
    is_true_colour = colours == PNG_COLOR_TYPE_RGB_ALPHA;
    if (png_get_bit_depth(png, info) == 16) png_set_strip_16(png);
    if (colours == PNG_COLOR_TYPE_PALETTE) png_set_palette_to_rgb(png);
    if (colours == PNG_COLOR_TYPE_GRAY) png_set_expand_gray_1_2_4_to_8(png);
    if ((colours & PNG_COLOR_MASK_COLOR) == 0) png_set_gray_to_rgb(png);
    (void)png_set_interlace_handling(png);
    png_read_update_info(png, info);
    return true;
  }

  bool read(png_bytepp rows) {
    if (setjmp(source.end) != 0) return false;
    png_read_image(png, rows);
    return true;
  }

  PngSource source;
  png_structp png = nullptr;
  png_infop info = nullptr;
  bool is_true_colour = false;  // true color with alpha
};

}  // namespace

Result<ImageHeader> read_png_header(FileBytes file) {
  PngReader reader(file);
  if (!reader.open()) return corrupted_image_error("PNG", reader.source.problem);
  return ImageHeader{ImageFormat::png, png_get_image_width(reader.png, reader.info), png_get_image_height(reader.png, reader.info)};
}

Result<RgbImage> decode_png(FileBytes file, const ImageHeader& head) {
  PngReader reader(file);
  if (!reader.open() || !reader.expand()) return corrupted_image_error("PNG", reader.source.problem);
  const std::size_t row_bytes = png_get_rowbytes(reader.png, reader.info);
  const std::size_t channels = row_bytes / head.width;
  if (row_bytes != channels * head.width || channels < 3 || channels > 4)
    return corrupted_image_error("PNG", "the rows have an unexpected size");
  RgbImage image = make_black_image(head);
  std::vector<std::uint8_t> wide(channels == 4 ? row_bytes * head.height : 0);
  std::uint8_t* const first = channels == 4 ? wide.data() : image.rgb.data();
  std::vector<png_bytep> rows(head.height);
  for (std::size_t i = 0; i < rows.size(); ++i) rows[i] = first + i * row_bytes;
  if (!reader.read(rows.data())) return corrupted_image_error("PNG", reader.source.problem);
  if (channels == 3) return image;
  // Only a true-color image is blended onto white. Pillow drops the transparency of all other images.
  if (reader.is_true_colour) {
    blend_onto_white(wide, image.rgb.data());
    return image;
  }
  for (std::size_t i = 0; i < image.rgb.size() / 3; ++i) std::memcpy(image.rgb.data() + 3 * i, wide.data() + 4 * i, 3);
  return image;
}

}  // namespace quire
