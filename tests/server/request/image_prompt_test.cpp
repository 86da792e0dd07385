// Tests placeholders and embeddings of images in a prompt, the memory for images, and templates that iterate over parts.
#include "server/request/image_prompt.h"

#include <gtest/gtest.h>

#include <boost/json/parse.hpp>
#include <boost/json/serialize.hpp>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

namespace quire {
namespace {

namespace json = boost::json;

// The shape of embeddings, through the text that they make in a prompt.
TEST(EmbeddingShapes, AreThoseThatTheModelTakes) {
  const ImageProcessor* const processor = find_image_processor("llava");
  ASSERT_NE(processor, nullptr);
  const auto placeholders = [&](const ImageInfo& info, std::size_t num_values, std::uint32_t rows, std::uint32_t columns) {
    ChatImage image;
    image.field = "f";
    image.embeds = std::make_shared<ImageEmbeds>(ImageEmbeds{.values = std::vector<float>(num_values), .rows = rows, .columns = columns});
    const std::vector<ChatImage> images = {image};
    const auto prompt = ImagePrompt::create(images, info, processor, 1);
    if (!prompt) return prompt.error().to_string();
    const std::string text = prompt->expand(processor->image_placeholder).value();
    return std::to_string(text.size() / processor->image_placeholder.size());
  };
  const ImageInfo tile{.processor = "llava", .tile_side = 1, .tile_tokens = 4, .embed_size = 3};
  EXPECT_EQ(placeholders(tile, 12, 0, 0), "4");
  EXPECT_EQ(placeholders(tile, 9, 0, 0), "f: has 3 embeddings; send 4, as for an image of one tile");
  EXPECT_EQ(placeholders(tile, 15, 0, 0), "f: has 5 embeddings; send 4, as for an image of one tile");
  EXPECT_EQ(placeholders(tile, 13, 0, 0), "f: has 13 numbers; send 3 numbers for each embedding");
  const ImageInfo none{.processor = "llava", .tile_side = 1, .tile_tokens = 4};
  EXPECT_EQ(placeholders(none, 12, 0, 0), "f: has 12 numbers; send 0 numbers for each embedding");
  const ImageInfo sizes{.processor = "llava", .tile_tokens = 4, .embed_size = 3};
  EXPECT_EQ(placeholders(sizes, 9, 0, 0), "3") << "images of different sizes have different numbers";
  EXPECT_EQ(placeholders(sizes, 12, 0, 0), "4");
  EXPECT_EQ(placeholders(sizes, 15, 0, 0), "f: has 5 embeddings; send at most 4");
  const ImageInfo grid{.processor = "llava", .tile_tokens = 6, .has_grid_positions = true, .embed_size = 1};
  EXPECT_EQ(placeholders(grid, 6, 2, 3), "6");
  EXPECT_EQ(placeholders(grid, 6, 3, 3), "f: has 6 embeddings, but states 3 rows of 3; send as many embeddings as rows times columns");
  EXPECT_EQ(placeholders(grid, 6, 0, 0), "f: has 6 embeddings, but states 0 rows of 0; send as many embeddings as rows times columns");
}

TEST(ImagePlaceholders, AreReplacedInTheirOrder) {
  const ImageProcessor* const processor = find_image_processor("llava");
  ASSERT_NE(processor, nullptr);
  const ImageInfo info{.processor = "llava", .tile_tokens = 4, .token = 9, .embed_size = 1};
  std::vector<ChatImage> images(2);
  for (std::size_t i = 0; i < 2; ++i) {
    images[i].field = "f" + std::to_string(i);
    images[i].digest[0] = static_cast<std::uint8_t>(i + 1);
    images[i].embeds = std::make_shared<ImageEmbeds>(ImageEmbeds{.values = std::vector<float>(i + 1)});
  }
  const std::string mark(processor->image_placeholder);
  const auto prompt = ImagePrompt::create(images, info, processor, 1);
  ASSERT_TRUE(prompt);
  EXPECT_TRUE(prompt->any());
  EXPECT_EQ(prompt->expand("a" + mark + "b" + mark + "c"), "a" + mark + "b" + mark + mark + "c");
  EXPECT_EQ(prompt->expand(mark).error().to_string(), "messages: have 1 placeholders for 2 images; do not write " + mark + " in a text");
  EXPECT_EQ(prompt->expand(mark + mark + mark).error().field, "messages");
  ImageMemory memory;
  const std::vector<TokenId> tokens = {1, 9, 2, 9, 3, 9, 4};
  const auto made = prompt->make(tokens, {memory, "t", ""});
  ASSERT_TRUE(made) << made.error().to_string();
  ASSERT_EQ(made->size(), 2U);
  EXPECT_EQ((*made)[0].position, PlaceholderRange(1, std::vector<std::uint8_t>{1}));
  EXPECT_EQ((*made)[1].position, PlaceholderRange(3, std::vector<std::uint8_t>{1, 0, 1}));
  EXPECT_EQ((*made)[0].identifier, to_hex(images[0].digest)) << "without a salt, equal images share their embeddings";
  const auto salted = prompt->make(tokens, {memory, "t", "salt"}), other = prompt->make(tokens, {memory, "t", "other"});
  EXPECT_NE((*salted)[0].identifier, (*made)[0].identifier);
  EXPECT_NE((*salted)[0].identifier, (*other)[0].identifier);
  EXPECT_NE((*salted)[0].identifier, (*salted)[1].identifier);
  const std::vector<TokenId> short_tokens = {1, 9, 2, 9};
  EXPECT_EQ(prompt->make(short_tokens, {memory, "t", ""}).error().to_string(),
            "f1: needs 2 image tokens, but the tokenizer made only 1 for it; use the tokenizer that belongs to the model");
  const auto all = memory.take(ImageMemory::kMaxBytes - 100, "u");
  const auto rest = memory.take(60, "v");
  EXPECT_EQ(prompt->make(tokens, {memory, "w", ""}).error().to_string(), "the memory for images is full; try again later");
}

TEST(ImageMemoryBytes, AreGivenAndTakenBack) {
  constexpr std::uint64_t kOneMiB = std::uint64_t{1} << 20;
  ImageMemory memory;
  EXPECT_EQ(memory.take(ImageMemory::kMaxBytes + 1, "a"), nullptr);
  EXPECT_NE(memory.take(ImageMemory::kMaxBytes, "a"), nullptr) << "the refused bytes were not counted";
  auto a = memory.take(200 * kOneMiB, "a"), b = memory.take(150 * kOneMiB, "b");
  // 162 MiB are free, so a tenant may hold 324 MiB.
  EXPECT_EQ(memory.take(125 * kOneMiB, "a"), nullptr);
  auto more = memory.take(124 * kOneMiB, "a");
  EXPECT_NE(more, nullptr);
  EXPECT_EQ(memory.take(39 * kOneMiB, "c"), nullptr) << "38 MiB are free";
  EXPECT_NE(memory.take(38 * kOneMiB, "c"), nullptr);
  more.reset();
  a.reset();
  EXPECT_NE(memory.take(362 * kOneMiB, "c"), nullptr);
  auto large = memory.reserve_scratch(448 * kOneMiB);
  EXPECT_NE(large, nullptr) << "an eighth is reserved for small images";
  EXPECT_EQ(memory.reserve_scratch(8 * kOneMiB + 1), nullptr);
  std::vector<std::shared_ptr<const void>> small;
  for (int i = 0; i < 8; ++i) EXPECT_NE(small.emplace_back(memory.reserve_scratch(8 * kOneMiB)), nullptr) << i;
  EXPECT_EQ(memory.reserve_scratch(1), nullptr);
  small.pop_back();
  EXPECT_NE(memory.reserve_scratch(1), nullptr);
  large.reset();
  EXPECT_EQ(memory.reserve_scratch(448 * kOneMiB + 1), nullptr);
}

TEST(ImageMemoryBytes, AreCountedForEveryTenant) {
  ImageMemory memory;
  std::vector<std::shared_ptr<const void>> held;
  constexpr std::uint64_t kBytes = 64 << 10, kScratch = std::uint64_t{448} << 20;
  for (int i = 0; i < 3000; ++i) EXPECT_NE(held.emplace_back(memory.take(kBytes, std::to_string(i))), nullptr) << i;
  EXPECT_NE(memory.reserve_scratch(kScratch), nullptr) << "memory for decoding is counted separately";
  const auto rest = memory.take(ImageMemory::kMaxBytes - 3000 * kBytes, "new");
  EXPECT_EQ(memory.take(1, "another"), nullptr) << "all bytes are taken";
  held.clear();
  EXPECT_NE(memory.take(kBytes, "another"), nullptr);
}

TEST(ContentParts, IterateWhereATemplateLoopsOverContent) {
  for (const char* text : {"{% for p in m.content %}", "{% for p in m['content'] %}", "{% for p in m[\"content\"] %}",
                           "{%- for item in message2.content -%}", "content {% for x in  m.content %}"})
    EXPECT_TRUE(iterates_parts(text)) << text;
  for (const char* text : {"", "content", ".content", "in content", "{{ m.content }}", "{% if m.content %}", "begin m.content",
                           "{% for p in m.contents2 %}{{ 'a' }}x.content", "{% for p in xcontent %}", "{% for p in content %}",
                           "{% for p in m[content] %}", "{% forin m.content %}"})
    EXPECT_EQ(iterates_parts(text), std::string_view(text).contains("contents2")) << text;
  for (const std::string_view whole : {"in .content", "in ['content"}) {
    const std::string_view part = whole.substr(whole.find("content"));
    EXPECT_FALSE(iterates_parts(part)) << "what precedes the template does not matter: " << whole;
  }
  json::array messages = json::parse(R"([{"content":"a"},{"content":[1]},{"role":"x"},3])").as_array();
  wrap_in_parts(messages);
  EXPECT_EQ(json::serialize(messages), R"([{"content":[{"type":"text","text":"a"}]},{"content":[1]},{"role":"x"},3])");
}

}  // namespace
}  // namespace quire
