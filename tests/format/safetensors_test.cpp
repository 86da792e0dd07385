#include "format/safetensors.h"

#include <gtest/gtest.h>

#include <random>

#include "format/gguf_builder.h"
#include "format/temp_folder.h"

namespace quire {
namespace {

using testing::Bytes;
using testing::TempFolder;

Bytes build(std::string_view header, std::size_t data_bytes) {
  Bytes bytes;
  bytes.text(header);
  return bytes.resize(bytes.size() + data_bytes);
}

constexpr std::string_view kTwo = R"({"__metadata__": {"format": "pt"},
  "b": {"dtype": "BF16", "shape": [2, 3], "data_offsets": [16, 28]},
  "a": {"dtype": "F32", "shape": [4], "data_offsets": [0, 16]}})";

TEST(Safetensors, ReadsTensors) {
  const Bytes bytes = build(kTwo, 28);
  const auto file = SafetensorsFile::parse(bytes.view(), "m");
  ASSERT_TRUE(file) << file.error().to_string();
  ASSERT_EQ(file->tensors().size(), 2U);
  const SafetensorsTensor* a = file->find("a");
  const SafetensorsTensor* b = file->find("b");
  ASSERT_TRUE(a && b);
  EXPECT_EQ(file->find("__metadata__"), nullptr);
  EXPECT_EQ(a->type().value(), GgmlType::f32);
  EXPECT_EQ(a->rows(), 1U);
  EXPECT_EQ(a->columns(), 4U);
  EXPECT_EQ(b->type().value(), GgmlType::bf16);
  EXPECT_EQ(b->rows(), 2U);
  EXPECT_EQ(b->columns(), 3U);
  EXPECT_EQ(b->data.data() + b->data.size(), bytes.view().data() + bytes.size());
}

TEST(Safetensors, AcceptsScalarsAndEmptyTensors) {
  const Bytes bytes = build(R"({"s": {"dtype": "F16", "shape": [], "data_offsets": [0, 2]},
                                "e": {"dtype": "F32", "shape": [0, 7], "data_offsets": [1, 1]}})",
                            2);
  const auto file = SafetensorsFile::parse(bytes.view(), "m");
  ASSERT_TRUE(file) << file.error().to_string();
  EXPECT_EQ(file->find("s")->columns(), 1U);
  EXPECT_TRUE(file->find("e")->data.empty());
}

TEST(Safetensors, ReportsUnsupportedElementTypesOnUse) {
  const Bytes bytes = build(R"({"q": {"dtype": "F8_E4M3", "shape": [4], "data_offsets": [0, 4]}})", 4);
  const auto file = SafetensorsFile::parse(bytes.view(), "m");
  ASSERT_TRUE(file);
  const auto type = file->find("q")->type();
  ASSERT_FALSE(type);
  EXPECT_EQ(type.error().code, ErrorCode::unsupported);
  EXPECT_EQ(type.error().field, "q");
  EXPECT_NE(type.error().message.find("F8_E4M3"), std::string::npos);
}

TEST(Safetensors, RefusesEveryTruncation) {
  const Bytes bytes = build(kTwo, 28);
  for (std::size_t size = 0; size < bytes.size(); ++size) {
    const std::vector<std::byte> cut(bytes.view().begin(), bytes.view().begin() + static_cast<std::ptrdiff_t>(size));
    const auto file = SafetensorsFile::parse(cut, "m");
    ASSERT_FALSE(file) << size;
    EXPECT_EQ(file.error().code, ErrorCode::corrupt) << size;
  }
}

TEST(Safetensors, AnyChangedByteGivesAFileOrAnError) {
  const Bytes bytes = build(kTwo, 28);
  std::mt19937 random(2);
  for (int round = 0; round < 20000; ++round) {
    std::vector<std::byte> copy(bytes.view().begin(), bytes.view().end());
    for (int i = 0; i < 2; ++i) copy[random() % copy.size()] = static_cast<std::byte>(random() % 128);
    const auto file = SafetensorsFile::parse(copy, "m");
    if (!file) continue;
    for (const SafetensorsTensor& tensor : file->tensors()) EXPECT_LE(tensor.data.data() + tensor.data.size(), copy.data() + copy.size());
  }
}

struct CorruptHeader {
  std::string_view header;
  std::string_view field;
  std::string_view message;
};

class CorruptSafetensors : public ::testing::TestWithParam<CorruptHeader> {};

TEST_P(CorruptSafetensors, AreRefusedWithTheField) {
  const Bytes bytes = build(GetParam().header, 32);
  const auto file = SafetensorsFile::parse(bytes.view(), "m");
  ASSERT_FALSE(file) << GetParam().header;
  EXPECT_NE(file.error().field.find(GetParam().field), std::string::npos) << file.error().to_string();
  EXPECT_NE(file.error().message.find(GetParam().message), std::string::npos) << file.error().to_string();
}

INSTANTIATE_TEST_SUITE_P(
    All, CorruptSafetensors,
    ::testing::Values(
        CorruptHeader{"[]", "m", "expected an object"}, CorruptHeader{"{", "m", "not valid JSON"},
        CorruptHeader{R"({"a": 1})", "a", "expected an object"}, CorruptHeader{R"({"a": null})", "a", "missing"},
        CorruptHeader{R"({"": {"dtype": "F32", "shape": [1], "data_offsets": [0, 4]}})", "m", "without a name"},
        CorruptHeader{R"({"a": {"shape": [1], "data_offsets": [0, 4]}})", "a.dtype", "missing"},
        CorruptHeader{R"({"a": {"dtype": "F32", "data_offsets": [0, 4]}})", "a.shape", "missing"},
        CorruptHeader{R"({"a": {"dtype": "F32", "shape": [1]}})", "a.data_offsets", "missing"},
        CorruptHeader{R"({"a": {"dtype": "F31", "shape": [1], "data_offsets": [0, 4]}})", "a", "unknown element type 'F31'"},
        CorruptHeader{R"({"a": {"dtype": "F32", "shape": [2], "data_offsets": [0, 4]}})", "a", "require 8"},
        CorruptHeader{R"({"a": {"dtype": "F32", "shape": [-1], "data_offsets": [0, 4]}})", "a.shape[0]", "out of range"},
        CorruptHeader{R"({"a": {"dtype": "F32", "shape": [1.0], "data_offsets": [0, 4]}})", "a.shape[0]", "integer"},
        CorruptHeader{R"({"a": {"dtype": "F32", "shape": [4294967296, 4294967296], "data_offsets": [0, 0]}})", "a", "overflows"},
        CorruptHeader{R"({"a": {"dtype": "F64", "shape": [2305843009213693952], "data_offsets": [0, 0]}})", "a", "overflows"},
        CorruptHeader{R"({"a": {"dtype": "F32", "shape": [1,1,1,1,1,1,1,1,1], "data_offsets": [0, 4]}})", "a.shape", "9 dimensions"},
        CorruptHeader{R"({"a": {"dtype": "F32", "shape": [1], "data_offsets": [0]}})", "a.data_offsets", "instead of 2"},
        CorruptHeader{R"({"a": {"dtype": "F32", "shape": [1], "data_offsets": [8, 4]}})", "a.data_offsets", "lie outside"},
        CorruptHeader{R"({"a": {"dtype": "F32", "shape": [1], "data_offsets": [32, 36]}})", "a.data_offsets", "lie outside"},
        CorruptHeader{R"({"a": {"dtype": "F32", "shape": [1], "data_offsets": [0, 18446744073709551615]}})", "a.data_offsets",
                      "lie outside"},
        CorruptHeader{
            R"({"a": {"dtype": "F32", "shape": [2], "data_offsets": [0, 8]}, "b": {"dtype": "F32", "shape": [1], "data_offsets": [4, 8]}})",
            "b", "overlap"},
        CorruptHeader{
            R"({"a": {"dtype": "F32", "shape": [1], "data_offsets": [0, 4]}, "a": {"dtype": "F32", "shape": [1], "data_offsets": [4, 8]}})",
            "m", "'a' occurs twice"}));

TEST(Safetensors, RefusesAHeaderLengthBeyondTheFile) {
  for (const std::uint64_t length : {std::uint64_t{100}, std::uint64_t{100'000'001}, ~std::uint64_t{0}}) {
    Bytes bytes;
    bytes.number(length).raw("{}");
    EXPECT_EQ(SafetensorsFile::parse(bytes.view(), "m").error().code, ErrorCode::corrupt);
  }
}

std::string one_tensor(std::string_view name) {
  return std::string(build(R"({")" + std::string(name) + R"(": {"dtype": "F32", "shape": [1], "data_offsets": [0, 4]}})", 4).as_text());
}

TEST(SafetensorsFolder, ReadsASingleFile) {
  const TempFolder folder;
  folder.write("model.safetensors", one_tensor("x"));
  const auto model = SafetensorsFolder::open(folder.path());
  ASSERT_TRUE(model) << model.error().to_string();
  EXPECT_NE(model->find("x"), nullptr);
  EXPECT_EQ(model->find("y"), nullptr);
}

TEST(SafetensorsFolder, JoinsShards) {
  const TempFolder folder;
  folder.write("one.safetensors", one_tensor("x"));
  folder.write("two.safetensors", one_tensor("y"));
  folder.write("model.safetensors.index.json", R"({"weight_map": {"x": "one.safetensors", "y": "two.safetensors"}})");
  auto model = SafetensorsFolder::open(folder.path());
  ASSERT_TRUE(model) << model.error().to_string();
  const SafetensorsFolder moved(std::move(*model));
  EXPECT_EQ(moved.tensors().size(), 2U);
  EXPECT_EQ(moved.find("y")->name, "y");
}

TEST(SafetensorsFolder, RefusesAnInconsistentIndex) {
  const TempFolder folder;
  folder.write("one.safetensors", one_tensor("x"));
  folder.write("two.safetensors", one_tensor("x"));
  EXPECT_EQ(SafetensorsFolder::open(folder.path()).error().code, ErrorCode::not_found);
  struct Case {
    std::string_view index;
    std::string_view text;
  };
  for (const Case& lie : {Case{R"({})", "weight_map"}, Case{R"({"weight_map": {"x": 1}})", "not a plain file name"},
                          Case{R"({"weight_map": {"x": "../one.safetensors"}})", "not a plain file name"},
                          Case{R"({"weight_map": {"x": "/etc/passwd"}})", "not a plain file name"},
                          Case{R"({"weight_map": {"x": "three.safetensors"}})", "no such file"},
                          Case{R"({"weight_map": {"z": "one.safetensors"}})", "'z' is not in 'one.safetensors'"},
                          Case{R"({"weight_map": {"x": "one.safetensors", "y": "two.safetensors"}})", "two shards"}}) {
    folder.write("model.safetensors.index.json", lie.index);
    const auto model = SafetensorsFolder::open(folder.path());
    ASSERT_FALSE(model) << lie.index;
    EXPECT_NE(model.error().to_string().find(lie.text), std::string::npos) << model.error().to_string();
  }
}

}  // namespace
}  // namespace quire
