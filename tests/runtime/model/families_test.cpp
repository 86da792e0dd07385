// Both readers know exactly the families that the descriptors list, and so does the page of models.
#include "runtime/model/config/families.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <fstream>
#include <set>
#include <sstream>
#include <string>

#include "runtime/model/json_config.h"
#include "runtime/model/tiny_model.h"

namespace quire {
namespace {

// hf_error() and gguf_error() read a config that has only a name. A reader that knows the name asks for another key.
Error hf_error(std::string_view name) {
  return tiny::from_json(fmt::format(R"({{"model_type": "{}"}})", name)).error();
}

Error gguf_error(std::string_view name) {
  tiny::GgufHeader header;
  header.add("general.architecture", std::string(name));
  const std::string bytes = header.file({});
  const auto file = GgufFile::parse(std::as_bytes(std::span(bytes)));
  return file ? config_from_gguf(*file).error() : file.error();
}

template <class ErrorOf>
void expect_exactly(const std::vector<FamilyName>& families, std::string_view field, ErrorOf error_of) {
  std::set<std::string, std::less<>> names;
  for (const FamilyName& family : families) EXPECT_TRUE(names.emplace(family.name).second) << family.name << " is listed twice";
  for (const std::string& name : names) {
    EXPECT_NE(error_of(name).field, field) << name;
    // Neighbours: a newer member, another case, and the beginning that families share.
    std::set<std::string> others{name + "5_x", name + "_next", "x" + name, name.substr(0, name.find_first_of("0123456789-_"))};
    for (const std::string& other : others) {
      if (names.contains(other)) continue;
      const Error error = error_of(other);
      EXPECT_EQ(error.code, ErrorCode::unsupported) << other;
      EXPECT_EQ(error.field, field) << other;
      for (const std::string& known : names) EXPECT_TRUE(error.remedy.contains(known)) << known << " is not in: " << error.remedy;
    }
  }
}

TEST(ModelFamilies, AreExactlyThoseThatTheReadersAccept) {
  std::vector<FamilyName> folders = hf_families();
  for (const VisionFamily& family : vision_families())
    if (find_hf_family(family.architecture) == nullptr) folders.push_back({family.architecture, "", nullptr});
  expect_exactly(folders, "config.json: model_type", hf_error);
  expect_exactly(gguf_families(), "general.architecture", gguf_error);
}

TEST(ModelFamilies, OfImagesHaveDecodersThatExist) {
  for (const VisionFamily& family : vision_families())
    for (const std::string_view decoder : family.decoders) EXPECT_NE(find_hf_family(decoder), nullptr) << decoder;
}

TEST(ModelFamilies, AreAllOnThePageOfModels) {
  std::ostringstream page;
  page << std::ifstream("docs/models.md").rdbuf();
  const std::string text = page.str();
  const auto expect_listed = [&](std::string_view name) {
    EXPECT_TRUE(text.contains(fmt::format("`{}`", name))) << name << " is missing in docs/models.md";
  };
  for (const auto& families : {hf_families(), gguf_families()})
    for (const FamilyName& family : families) expect_listed(family.name);
  for (const VisionFamily& family : vision_families()) expect_listed(family.architecture);
}

}  // namespace
}  // namespace quire
