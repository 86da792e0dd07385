#include "server/api/audio/form_data.h"

#include <gtest/gtest.h>

#include <string>
#include <utility>

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

std::string shown_form(const std::string& body, const std::string& type = kFormType) {
  const auto parts = parse_form(type, body);
  if (!parts) return parts.error().to_string();
  std::string text;
  for (const FormPart& part : *parts) text += part.name + (part.is_file ? "!" : "=") + std::string(part.value) + ";";
  return text;
}

TEST(FormBodies, AreParsedAsTheirRfcDefines) {
  const std::string fix = "; send multipart/form-data as RFC 7578 defines it";
  const auto one = [](const std::string& head) { return "--xyz\r\n" + head + "\r\n\r\nv\r\n--xyz--"; };
  const std::pair<std::string, std::string> cases[] = {
      {"--xyz--", ""},
      {"\r\n--xyz--", ""},
      {"--xyz \t\r\nContent-Disposition: form-data; name=a\r\n\r\nv\r\n--xyz \t \r\nContent-Disposition: form-data; "
       "name=b\r\n\r\nw\r\n--xyz--",
       "a=v;b=w;"},
      {one("Content-Disposition: form-data; name=\"a\""), "a=v;"},
      {one("content-disposition : form-data ; NAME = a ; filename=f"), "a!v;"},
      {one("Content-Disposition: form-data; name=a; filename*=UTF-8''f"), "a!v;"},
      {one("Content-Disposition: form-data; name=\"a\\\"b\\\\c\\d\""), "a\"b\\c\\d=v;"},
      {one("Content-Disposition: form-data; name=\"b\\\\cd\""), "b\\cd=v;"},
      {one("X: y\r\nContent-Disposition: form-data; name=a\r\nContent-Type: text/plain"), "a=v;"},
      {one("Content-Disposition: form-data; name=a\r\nContent-Transfer-Encoding: 8BIT"), "a=v;"},
      {one("Content-Disposition: form-data; name=a\r\nContent-Transfer-Encoding: 7bit"), "a=v;"},
      {one("Content-Disposition: form-data; name=a\r\nContent-Transfer-Encoding: binary"), "a=v;"},
      {one("Content-Disposition: form-data; name=" + std::string(256, 'n')), std::string(256, 'n') + "=v;"},
      {one("Content-Disposition: form-data; name=" + std::string(257, 'n')), "body: has a part without a name" + fix},
      {one("Content-Disposition: form-data; name=\"a"), "body: has a part without a name" + fix},
      {one("Content-Disposition: form-data; name=\"a\\\""), "body: has a part without a name" + fix},
      {one("Content-Disposition: form-data; name=\"\""), "body: has a part without a name" + fix},
      {one("Content-Disposition: form-data; name"), "body: has a part without a name" + fix},
      {one("X: y"), "body: has a part without a name" + fix},
      {one("Content-Disposition: form-data; name=a\r\nContent-Transfer-Encoding: base64"),
       "body: has a part with the unsupported Content-Transfer-Encoding 'base64'" + fix},
      {"", "body: does not contain the boundary" + fix},
      {"--xyzjunk\r\n", "body: has other characters after a boundary on the same line" + fix},
      {"--xyz\r\n\r\nv\r\n--xyz--", "body: has a part whose headers are incomplete or too large" + fix},
      {"--xyz\r\nContent-Disposition: form-data; name=a\r\n\r\nv", "body: ends in the middle of a part" + fix},
  };
  for (const auto& [body, parts] : cases) EXPECT_EQ(shown_form(body), parts) << body;
  // The headers of a part have at most 4096 bytes with the empty line.
  const std::string disposition = "Content-Disposition: form-data; name=a\r\nX: ";
  EXPECT_EQ(shown_form(one(disposition + std::string(4096 - 4 - disposition.size(), 'x'))), "a=v;");
  EXPECT_EQ(shown_form(one(disposition + std::string(4096 - 3 - disposition.size(), 'x'))),
            "body: has a part whose headers are incomplete or too large" + fix);
  std::string parts;
  for (std::size_t i = 0; i < kMaxFormParts; ++i) parts += "--xyz\r\nContent-Disposition: form-data; name=a\r\n\r\nv\r\n";
  EXPECT_EQ(parse_form(kFormType, parts + "--xyz--")->size(), 64U);
  EXPECT_EQ(shown_form(parts + "--xyz\r\nContent-Disposition: form-data; name=a\r\n\r\nv\r\n--xyz--"),
            "body: has more than 64 parts; send fewer parts");
}

TEST(FormBodies, BoundaryHasAtMostSeventyBytes) {
  const auto with = [](const std::string& boundary, const std::string& written) {
    return shown_form("--" + boundary + "\r\nContent-Disposition: form-data; name=a\r\n\r\nv\r\n--" + boundary + "--",
                      "multipart/form-data; boundary=" + written);
  };
  const std::string wrong = "Content-Type: has no valid boundary; send 'multipart/form-data; boundary=...' with 1 to 70 characters";
  EXPECT_EQ(with(std::string(70, 'b'), std::string(70, 'b')), "a=v;");
  EXPECT_EQ(with(std::string(71, 'b'), std::string(71, 'b')), wrong);
  EXPECT_EQ(with("b c", "\"b c\""), "a=v;");
  EXPECT_EQ(with("b", "b ; charset=utf-8"), "a=v;");
  EXPECT_EQ(with("b", ""), wrong);
  EXPECT_EQ(with("b", "\"b"), wrong);
  EXPECT_EQ(with("b", "\"b\r\n\""), wrong);
}

}  // namespace
}  // namespace quire
