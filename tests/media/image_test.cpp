#include "media/image.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <fstream>
#include <iterator>
#include <sstream>
#include <string>
#include <vector>

#include "base/base64.h"
#include "base/digest.h"
#include "media/data_url.h"
#include "media/gemma3.h"
#include "media/idefics3.h"
#include "media/llava.h"
#include "media/qwen_vl.h"
#include "media/resample.h"

namespace quire {
namespace {

using Bytes = std::vector<std::byte>;

Bytes picture_file(const std::string& name) {
  std::ifstream file("tests/golden/pictures/" + name, std::ios::binary);
  EXPECT_TRUE(file.good()) << name;
  const std::string text{std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
  const auto bytes = std::as_bytes(std::span(text));
  return {bytes.begin(), bytes.end()};
}

RgbImage decoded(const std::string& name) {
  auto picture = decode_image(picture_file(name));
  EXPECT_TRUE(picture.has_value()) << name << ": " << picture.error().to_string();
  return picture.value_or(RgbImage{1, 1, {0, 0, 0}});
}

std::string digest_of(std::span<const std::uint8_t> bytes) {
  return to_hex(Sha256::of(std::as_bytes(bytes)));
}

// Returns the lines of cases.txt that begin with this word, without the word.
std::vector<std::istringstream> recorded(const std::string& kind) {
  std::ifstream file("tests/golden/pictures/cases.txt");
  std::vector<std::istringstream> lines;
  for (std::string line; std::getline(file, line);)
    if (line.starts_with(kind + " ")) lines.emplace_back(line.substr(kind.size() + 1));
  EXPECT_FALSE(lines.empty());
  return lines;
}

std::string refusal(const Bytes& file) {
  const auto picture = decode_image(file);
  return picture ? "" : picture.error().to_string();
}

// Makes a PNG with 13 bytes of IHDR and nothing after it.
Bytes png_head(std::uint32_t width, std::uint32_t height) {
  Bytes file = picture_file("rgb.png");
  const auto put = [&](std::size_t at, std::uint32_t value) {
    for (std::size_t i = 0; i < 4; ++i) file[at + i] = static_cast<std::byte>(value >> (24 - 8 * i) & 0xFFU);
  };
  put(16, width);
  put(20, height);
  // The checksum covers type and content.
  std::uint32_t crc = 0xFFFFFFFFU;
  for (std::size_t i = 12; i < 29; ++i) {
    crc ^= std::to_integer<std::uint32_t>(file[i]);
    for (int bit = 0; bit < 8; ++bit) crc = (crc & 1U) != 0 ? crc >> 1U ^ 0xEDB88320U : crc >> 1U;
  }
  put(29, ~crc);
  return file;
}

class ImageTest : public ::testing::Test {
 protected:
  void SetUp() override {
    if (!has_image_decoders()) GTEST_SKIP() << "this build reads no pictures";
  }
};

TEST_F(ImageTest, DecodesEveryFormatLikePillow) {
  for (auto& line : recorded("decode")) {
    std::string name, digest;
    std::uint32_t width = 0, height = 0;
    line >> name >> width >> height >> digest;
    const RgbImage picture = decoded(name);
    EXPECT_EQ(picture.width, width) << name;
    EXPECT_EQ(picture.height, height) << name;
    EXPECT_EQ(digest_of(picture.rgb), digest) << name;
    const auto head = read_image_header(picture_file(name));
    ASSERT_TRUE(head.has_value()) << name;
    EXPECT_EQ(std::pair(head->width, head->height), std::pair(width, height)) << name;
  }
}

TEST_F(ImageTest, ScalingHasTheBitsOfPillow) {
  for (auto& line : recorded("resample")) {
    std::string name, digest;
    std::uint32_t width = 0, height = 0, filter = 0;
    line >> name >> width >> height >> filter >> digest;
    const RgbImage scaled = resample(decoded(name), width, height, static_cast<ResampleFilter>(filter));
    EXPECT_EQ(digest_of(scaled.rgb), digest) << name << " to " << width << " x " << height << ", filter " << filter;
  }
}

TEST_F(ImageTest, Idefics3SplitsLikeTransformers) {
  for (auto& line : recorded("idefics3")) {
    std::string name, digest;
    bool splits = false;
    ImageInfo info{.processor = "idefics3"};
    TileGrid grid;
    line >> name >> splits >> info.longest_edge >> info.tile_side >> grid.rows >> grid.columns >> digest;
    info.splits = splits;
    const RgbImage picture = decoded(name);
    EXPECT_EQ(idefics3_grid(picture.width, picture.height, info), grid) << name;
    const ImageTiles tiles = idefics3_tiles(picture, info);
    EXPECT_EQ(tiles.count, grid.num_tiles()) << name;
    EXPECT_EQ(digest_of(tiles.rgb), digest) << name << " " << info.longest_edge << " " << info.tile_side;
  }
}

TEST_F(ImageTest, LlavaCropsLikeTransformers) {
  for (auto& line : recorded("llava")) {
    std::string name, digest;
    ImageInfo info{.processor = "llava", .tile_tokens = 4, .max_tiles = 1, .mean = {}, .deviation = {}};
    line >> name >> info.shortest_edge >> info.tile_side >> info.filter >> digest;
    const RgbImage picture = decoded(name);
    const ImageTiles tiles = llava_tiles(picture, info);
    EXPECT_EQ(digest_of(tiles.rgb), digest) << name << " " << info.shortest_edge << " " << info.tile_side;
    const auto shape = kLlavaProcessor.shape(picture.width, picture.height, info);
    ASSERT_TRUE(shape.has_value());
    EXPECT_EQ(shape->num_bytes(), tiles.rgb.size());
    EXPECT_EQ(kLlavaProcessor.text(*shape, {}), "<image><image><image><image>");
  }
}

TEST_F(ImageTest, Gemma3ScalesLikeTransformers) {
  for (auto& line : recorded("gemma3")) {
    std::string name, digest;
    ImageInfo info{.processor = "gemma3", .filter = 2, .tile_tokens = 3, .max_tiles = 1};
    line >> name >> info.tile_side >> digest;
    const RgbImage picture = decoded(name);
    const ImageTiles tiles = kGemma3Processor.tiles(picture, info);
    EXPECT_EQ(digest_of(tiles.rgb), digest) << name << " " << info.tile_side;
    const auto shape = kGemma3Processor.shape(picture.width, picture.height, info);
    ASSERT_TRUE(shape.has_value());
    EXPECT_EQ(shape->num_bytes(), tiles.rgb.size());
    EXPECT_EQ(kGemma3Processor.text(*shape, {.processor = "gemma3", .place = "<pad>"}),
              "\n\n<start_of_image><pad><pad><pad><end_of_image>\n\n");
    EXPECT_EQ(kGemma3Processor.text(*shape, {}),
              "\n\n<start_of_image><image_soft_token><image_soft_token><image_soft_token><end_of_image>\n\n");
  }
}

TEST_F(ImageTest, QwenScalesLikeTransformers) {
  for (auto& line : recorded("qwen_vl")) {
    std::string name, digest;
    ImageInfo info{.processor = "qwen2_vl", .filter = 3, .tile_tokens = 4096, .max_tiles = 1};
    std::uint32_t rows = 0, columns = 0;
    line >> name >> info.min_pixels >> info.max_pixels >> info.embed_side >> rows >> columns >> digest;
    const RgbImage picture = decoded(name);
    const auto shape = kQwenVlProcessor.shape(picture.width, picture.height, info);
    ASSERT_TRUE(shape.has_value()) << name;
    EXPECT_EQ(shape->tile_height, rows * info.embed_side) << name;
    EXPECT_EQ(shape->tile_width, columns * info.embed_side) << name;
    EXPECT_EQ(shape->num_tokens(), rows * columns) << name;
    const ImageTiles tiles = kQwenVlProcessor.tiles(picture, info);
    EXPECT_EQ(tiles.count, 1U) << name;
    EXPECT_EQ(tiles.rgb.size(), shape->num_bytes()) << name;
    EXPECT_EQ(digest_of(tiles.rgb), digest) << name << " " << info.min_pixels << " " << info.max_pixels;
  }
}

TEST(QwenVlTest, APlaceholderPerEmbedding) {
  const ImageInfo info{.processor = "qwen2_vl", .tile_tokens = 1280, .embed_side = 28, .min_pixels = 3136, .max_pixels = 1003520};
  const auto shape = kQwenVlProcessor.shape(80, 60, info);
  ASSERT_TRUE(shape.has_value());
  EXPECT_EQ(kQwenVlProcessor.text(*shape, {}), "<|image_pad|><|image_pad|><|image_pad|><|image_pad|><|image_pad|><|image_pad|>");
}

TEST(QwenVlTest, RefusesAnImageWithAnUnsupportedShape) {
  const ImageInfo info{.processor = "qwen2_vl", .tile_tokens = 30, .embed_side = 28, .min_pixels = 3136, .max_pixels = 1003520};
  EXPECT_TRUE(kQwenVlProcessor.shape(140, 168, info).has_value());
  EXPECT_FALSE(kQwenVlProcessor.shape(140, 196, info).has_value()) << "35 embeddings";
  EXPECT_TRUE(kQwenVlProcessor.shape(1, 7, info).has_value());
  EXPECT_FALSE(kQwenVlProcessor.shape(1, 201, info).has_value()) << "the image is more than 200 times as high as wide";
}

TEST_F(ImageTest, ATruncatedFileIsRefusedOrComplete) {
  for (const char* name : {"rgb.png", "palette.png", "jpeg_420.jpg", "jpeg_progressive.jpg", "lossy.webp", "alpha.webp", "plain.gif"}) {
    const Bytes whole = picture_file(name);
    const RgbImage picture = decoded(name);
    for (std::size_t size = 0; size < whole.size(); size += 1 + size / 24) {
      const auto cut = decode_image(std::span(whole).first(size));
      // Some formats end with unused bytes.
      if (cut) EXPECT_EQ(*cut, picture) << name << " cut to " << size;
      if (!cut) EXPECT_EQ(cut.error().code == ErrorCode::invalid_argument || size < 12, true) << name << " cut to " << size;
    }
  }
}

TEST_F(ImageTest, RefusesAnExcessiveSizeBeforeReadingPixels) {
  EXPECT_NE(refusal(png_head(60'000, 60'000)).find("60000 x 60000"), std::string::npos);
  EXPECT_NE(refusal(png_head(8'000, 8'000)).find("8000 x 8000"), std::string::npos);
  EXPECT_EQ(decode_image(png_head(20'000, 1)).error().code, ErrorCode::too_large);
  // This size is large, but allowed: the file is read, and its pixels are missing.
  EXPECT_NE(refusal(png_head(4'000, 4'000)).find("corrupted PNG"), std::string::npos);
  Bytes gif = picture_file("plain.gif");
  gif[6] = gif[7] = gif[8] = gif[9] = std::byte{0xFF};
  EXPECT_EQ(decode_image(gif).error().code, ErrorCode::too_large);
  gif[6] = gif[7] = std::byte{0};
  EXPECT_NE(refusal(gif).find("0 pixels"), std::string::npos);
}

TEST_F(ImageTest, RefusesUnsupportedFormatsWithTheReason) {
  EXPECT_NE(refusal(picture_file("cmyk.jpg")).find("CMYK"), std::string::npos);
  EXPECT_NE(refusal(picture_file("animated.webp")).find("animated WebP"), std::string::npos);
  EXPECT_NE(refusal({}).find("is empty"), std::string::npos);
  EXPECT_NE(refusal(Bytes(100, std::byte{'x'})).find("not a PNG, JPEG, WebP or GIF"), std::string::npos);
}

TEST_F(ImageTest, DecodesTheFirstFrameOfAnAnimatedGif) {
  EXPECT_EQ(decoded("animated.gif"), decoded("plain.gif"));
}

TEST(ImageFallbackTest, RefusesImagesInABuildWithoutTheLibraries) {
  if (has_image_decoders()) GTEST_SKIP() << "this build reads images";
  EXPECT_NE(refusal(picture_file("rgb.png")).find("QUIRE_WITH_PICTURES"), std::string::npos);
}

TEST(ResampleTest, AConstantImageKeepsItsValue) {
  const RgbImage grey{7, 5, std::vector<std::uint8_t>(105, 77)};
  for (const auto filter :
       {ResampleFilter::lanczos, ResampleFilter::bilinear, ResampleFilter::bicubic, ResampleFilter::box, ResampleFilter::hamming})
    for (const std::uint32_t side : {1U, 3U, 7U, 40U}) {
      const RgbImage scaled = resample(grey, side, side + 1, filter);
      EXPECT_TRUE(std::ranges::all_of(scaled.rgb, [](std::uint8_t value) { return value == 77; }));
      EXPECT_EQ(scaled.rgb.size(), 3 * side * (side + 1));
    }
}

// The whole scaled image would have 300 million pixels.
TEST(ResampleTest, ScalingAPartCostsOnlyThePart) {
  const RgbImage line{1, 16'384, std::vector<std::uint8_t>(std::size_t{3} * 16'384, 9)};
  const ImageInfo info{.processor = "llava", .tile_side = 140, .shortest_edge = 140, .filter = 3, .mean = {}, .deviation = {}};
  EXPECT_EQ(llava_tiles(line, info).rgb, std::vector<std::uint8_t>(std::size_t{3} * 140 * 140, 9));
}

TEST(ImageProcessors, AreFoundByTheirNames) {
  for (const char* name : {"idefics3", "llava", "gemma3", "qwen2_vl"}) {
    ASSERT_NE(find_image_processor(name), nullptr) << name;
    EXPECT_EQ(find_image_processor(name)->name, name);
  }
  EXPECT_EQ(find_image_processor("other"), nullptr);
}

TEST(Idefics3Test, ThePromptHasATokenForEachTile) {
  EXPECT_EQ(idefics3_prompt({}, 2), "<fake_token_around_image><global-img><image><image><fake_token_around_image>");
  EXPECT_EQ(idefics3_prompt({1, 2}, 1),
            "<fake_token_around_image><row_1_col_1><image><fake_token_around_image><row_1_col_2><image>\n\n"
            "<fake_token_around_image><global-img><image><fake_token_around_image>");
}

TEST(DataUrlTest, DecodesTheFile) {
  const Bytes bytes = {std::byte{0}, std::byte{0xFF}, std::byte{7}, std::byte{8}};
  EXPECT_EQ(read_data_url("data:image/png;base64," + base64_of(bytes)).value(), bytes);
  EXPECT_EQ(read_data_url("data:;base64," + base64_of(bytes)).value(), bytes);
}

TEST(DataUrlTest, RefusesOtherUrls) {
  const auto problem = [](std::string_view url) {
    const auto bytes = read_data_url(url);
    return bytes ? std::string() : bytes.error().message;
  };
  EXPECT_EQ(problem("https://example.org/cat.png"), "is a URL, and this server does not fetch images");
  EXPECT_EQ(problem("file:///etc/passwd"), "is a URL, and this server does not fetch images");
  EXPECT_EQ(problem("data:image/png,abc"), "is a data URL without base64");
  EXPECT_EQ(problem("cat.png"), "is not a data URL");
  EXPECT_EQ(problem("data:image/png;base64,"), "is empty");
  for (const char* text : {"A", "AAA", "AA=A", "====", "AB==", "AAB=", "A A=", "AAA\n"})
    EXPECT_EQ(problem(std::string("data:;base64,") + text), "is not valid base64") << text;
}

}  // namespace
}  // namespace quire
