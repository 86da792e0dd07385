#include "server/api/audio/form_data.h"

#include <gtest/gtest.h>

#include <string>

namespace quire {
namespace {

constexpr const char* kFormType = "multipart/form-data; boundary=xyz";

std::string form_part(const std::string& disposition, const std::string& value) {
  return "--xyz\r\nContent-Disposition: form-data; " + disposition + "\r\n\r\n" + value + "\r\n";
}

TEST(FormDataTest, ReturnsPartsInOrderByteForByte) {
  const std::string bytes("\0\r\n--xy\xff\r\n-", 12);
  const std::string body = "a preamble\r\n" + form_part("name=\"file\"; filename=\"a\\\"b.wav\"", bytes) + form_part("name=model", "m") +
                           form_part("name=\"empty\"", "") + "--xyz--\r\nan epilogue";
  const auto parts = parse_form(kFormType, body);
  ASSERT_TRUE(parts.has_value()) << parts.error().to_string();
  ASSERT_EQ(parts->size(), 3U);
  EXPECT_EQ((*parts)[0].name, "file");
  EXPECT_TRUE((*parts)[0].is_file);
  EXPECT_EQ((*parts)[0].value, bytes);
  EXPECT_EQ((*parts)[1].name, "model");
  EXPECT_FALSE((*parts)[1].is_file);
  EXPECT_EQ((*parts)[1].value, "m");
  EXPECT_EQ((*parts)[2].value, "");
}

TEST(FormDataTest, AcceptsQuotedBoundariesAndOtherParameters) {
  const std::string body = form_part("name=a", "b") + "--xyz--";
  for (const char* type : {"multipart/form-data; boundary=\"xyz\"", "Multipart/Form-Data;charset=utf-8; Boundary=xyz ; other=1"}) {
    const auto parts = parse_form(type, body);
    ASSERT_TRUE(parts.has_value()) << type;
    EXPECT_EQ(parts->front().value, "b");
  }
}

TEST(FormDataTest, RefusesMalformedForms) {
  const auto field_of = [](const std::string& type, const std::string& body) {
    const auto parts = parse_form(type, body);
    EXPECT_FALSE(parts.has_value()) << type << body;
    return parts ? "" : parts.error().field;
  };
  EXPECT_EQ(field_of("multipart/form-data", "x"), "Content-Type");
  EXPECT_EQ(field_of("multipart/form-data; boundary=", "x"), "Content-Type");
  EXPECT_EQ(field_of("multipart/form-data; boundary=" + std::string(71, 'x'), "x"), "Content-Type");
  EXPECT_EQ(field_of(kFormType, ""), "body");
  EXPECT_EQ(field_of(kFormType, "--xyz"), "body");
  EXPECT_EQ(field_of(kFormType, "--xyzjunk\r\n"), "body");
  EXPECT_EQ(field_of(kFormType, "--xyz\r\n\r\nvalue\r\n--xyz--"), "body");
  EXPECT_EQ(field_of(kFormType, form_part("filename=x", "b") + "--xyz--"), "body");
  EXPECT_EQ(field_of(kFormType, form_part("name=a", "b")), "body") << "the final boundary is missing";
  EXPECT_EQ(field_of(kFormType, form_part("name=a\r\nContent-Transfer-Encoding: base64", "b") + "--xyz--"), "body");
  EXPECT_EQ(field_of(kFormType, form_part("name=a\r\nX: " + std::string(5000, 'x'), "b") + "--xyz--"), "body");
  std::string many;
  for (std::size_t i = 0; i <= kMaxFormParts; ++i) many += form_part("name=a", "b");
  EXPECT_EQ(field_of(kFormType, many + "--xyz--"), "body");
}

}  // namespace
}  // namespace quire
