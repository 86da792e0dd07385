// Tests how image parts of messages are read: which are accepted, what templates get, and each error.
#include "server/request/chat_images.h"

#include <gtest/gtest.h>

#include <boost/json/parse.hpp>
#include <boost/json/serialize.hpp>
#include <limits>
#include <span>
#include <string>
#include <vector>

#include "base/base64.h"
#include "base/digest.h"

namespace quire {
namespace {

namespace json = boost::json;

std::string base64_of_floats(const std::vector<float>& values) {
  return base64_of(std::as_bytes(std::span(values)));
}

class ImageParts : public ::testing::Test {
 protected:
  Result<ChatImage> read(const std::string& text, bool is_one_too_many = false) {
    part_ = json::parse(text);
    return read_image_part(part_, "messages[0].content[1]", reading_, fetched_, is_one_too_many);
  }
  std::string error(const std::string& text, bool is_one_too_many = false) {
    const auto image = read(text, is_one_too_many);
    return image ? "accepted" : image.error().to_string();
  }
  ImageReading reading_{.supports_images = true, .most = 3, .placeholder = "<image>", .accepts_embeds = true};
  MediaFetcher::Budget fetched_;
  json::value part_;
};

TEST_F(ImageParts, ErrorsNameThePartTheProblemAndTheFix) {
  const std::string at = "messages[0].content[1]: ";
  const std::string form = "; send [embedding][hidden_size] in 32-bit floats: base64 of tensor.float().numpy().tobytes()";
  const std::string url = "; send a data URL: data:image/png;base64,...";
  EXPECT_EQ(error(R"({"type":"image_url"})"), at + "contains no image" + url);
  EXPECT_EQ(error(R"({"type":"image_url","image_url":3})"), at + "contains no image" + url);
  EXPECT_EQ(error(R"({"type":"image_url","image_url":{"url":3}})"), at + "contains no image" + url);
  EXPECT_EQ(error(R"({"type":"image_url","image_url":"http://a"})"),
            at + "is a URL, and this server does not fetch images; send the image itself as data:image/png;base64,..., or add its host to "
                 "--allowed-media-domains");
  EXPECT_EQ(error(R"({"type":"image_url","image_url":"data:image/png;base64,AAAA"})", true),
            at + "is image 4 of the request; send at most 3 images (--limit-mm-per-prompt)");
  EXPECT_EQ(error(R"({"type":"image_embeds"})"), at + "does not contain embeddings in base64" + form);
  EXPECT_EQ(error(R"({"type":"image_embeds","image_embeds":""})"), at + "does not contain embeddings in base64" + form);
  EXPECT_EQ(error(R"({"type":"image_embeds","image_embeds":"AAA="})"), at + "does not contain embeddings in base64" + form);
  EXPECT_EQ(error(R"({"type":"image_embeds","image_embeds":")" + base64_of_floats({1.0F, std::numeric_limits<float>::infinity()}) + "\"}"),
            at + "contains NaN or Inf in its embeddings" + form);
  const std::string embeds = R"({"type":"image_embeds","image_embeds":")" + base64_of_floats({1.0F}) + "\"";
  EXPECT_EQ(error(embeds + R"(,"rows":-1})"), at + "has an invalid value of rows: integer -1; send a non-negative integer");
  EXPECT_EQ(error(embeds + R"(,"rows":1,"columns":"2"})"),
            at + R"(has an invalid value of columns: string "2"; send a non-negative integer)");
  EXPECT_EQ(error(embeds + R"(,"rows":4294967296})"), at + "has an invalid value of rows: integer 4294967296; send a non-negative integer");
  EXPECT_EQ(error(embeds + R"(,"rows":4294967295})"), "accepted");
  reading_.accepts_embeds = false;
  EXPECT_EQ(error(embeds + "}"), at + "contains embeddings, which this server does not accept; start the server with --enable-mm-embeds");
  reading_.supports_images = false;
  EXPECT_EQ(error(R"({"type":"image_url","image_url":"data:,"})"),
            at + R"(has type string "image_url"; send text parts: this model supports text only)");
  EXPECT_EQ(error(R"({"type":"image_url","quire_part":"=input[0]"})"),
            R"(=input[0].type: has type string "image_url"; send text parts: this model supports text only)");
}

TEST_F(ImageParts, FilesAreNamedByTheirBytes) {
  for (const char* part : {R"({"type":"image_url","image_url":"data:image/png;base64,QUJD"})",
                           R"({"type":"input_image","image_url":{"url":"data:image/jpeg;base64,QUJD"}})"}) {
    const auto image = read(part);
    ASSERT_TRUE(image) << image.error().to_string();
    const std::string bytes(reinterpret_cast<const char*>(image->file.data()), image->file.size());
    EXPECT_EQ(bytes, "ABC");
    EXPECT_EQ(image->digest, Sha256::of(image->file));
    EXPECT_EQ(image->embeds, nullptr);
    EXPECT_EQ(image->field, "messages[0].content[1]");
    EXPECT_EQ(json::serialize(part_), R"({"type":"image","digest":")" + to_hex(image->digest) + "\"}");
  }
  EXPECT_EQ(read(R"({"type":"image_url","image_url":"data:;base64,QUJD","quire_part":"=input[0]"})")->field, "=input[0]");
  EXPECT_TRUE(is_image_part("image_url"));
  EXPECT_TRUE(is_image_part("input_image"));
  EXPECT_TRUE(is_image_part("image_embeds"));
  EXPECT_FALSE(is_image_part("image"));
}

TEST_F(ImageParts, EmbeddingsAreNamedByTheirNumbersAndGrid) {
  const std::vector<float> values = {1.0F, -2.5F, 1e-30F, 0.0F};
  const std::string part = R"({"type":"image_embeds","image_embeds":")" + base64_of_floats(values) + "\"";
  const auto plain = read(part + "}");
  ASSERT_TRUE(plain) << plain.error().to_string();
  EXPECT_EQ(plain->embeds->values, values);
  EXPECT_EQ(plain->embeds->rows, 0U);
  EXPECT_EQ(plain->embeds->columns, 0U);
  EXPECT_TRUE(plain->file.empty());
  const auto grid = read(part + R"(,"rows":1,"columns":2.0})"), other = read(part + R"(,"rows":2,"columns":1})");
  ASSERT_TRUE(grid && other);
  EXPECT_EQ(grid->embeds->rows, 1U);
  EXPECT_EQ(grid->embeds->columns, 2U);
  EXPECT_NE(grid->digest, plain->digest);
  EXPECT_NE(grid->digest, other->digest);
  EXPECT_EQ(read(part + R"(,"rows":0})")->digest, plain->digest) << "0 is the default";
}

}  // namespace
}  // namespace quire
