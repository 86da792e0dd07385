#include "format/gguf.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <array>
#include <filesystem>
#include <random>

#include "format/gguf_builder.h"
#include "format/temp_folder.h"

namespace quire {
namespace {

using testing::Bytes;
using testing::GgufBuilder;
using testing::small_gguf;
using testing::TempFolder;

Error error_of(const Bytes& bytes) {
  const auto file = GgufFile::parse(bytes.view());
  return file ? Error{ErrorCode::io, "parsed", "no error", ""} : file.error();
}

Error error_of(const GgufBuilder& builder) {
  return error_of(builder.build());
}

// The file must be refused as `corrupt`, the field must contain `field`, and the remedy must not be empty.
void expect_corrupt(const GgufBuilder& builder, std::string_view field, std::string_view message) {
  const Error error = error_of(builder);
  EXPECT_EQ(error.code, ErrorCode::corrupt) << error.to_string();
  EXPECT_NE(error.field.find(field), std::string::npos) << error.to_string();
  EXPECT_NE(error.message.find(message), std::string::npos) << error.to_string();
  EXPECT_FALSE(error.remedy.empty());
}

TEST(Gguf, ReadsMetadataOfEveryKind) {
  const Bytes bytes = small_gguf().build();
  const auto file = GgufFile::parse(bytes.view());
  ASSERT_TRUE(file) << file.error().to_string();
  EXPECT_EQ(file->version(), 3U);
  EXPECT_EQ(file->get<std::string_view>("general.architecture").value(), "llama");
  EXPECT_EQ(file->get<std::uint32_t>("a.u32").value(), 4000000000U);
  EXPECT_EQ(file->get<std::int64_t>("a.i8").value(), -5);
  EXPECT_EQ(file->get<float>("a.f32").value(), 1.5F);
  EXPECT_EQ(file->get<float>("a.f64").value(), 2.5F);
  EXPECT_TRUE(file->get<bool>("a.bool").value());
  EXPECT_EQ(file->get_array<std::int32_t>("a.ints").value(), (std::vector<std::int32_t>{1, -2, 3}));
  EXPECT_EQ(file->get_array<std::string_view>("a.strings").value(), (std::vector<std::string_view>{"one", "", "three"}));
  EXPECT_EQ(file->keys().size(), 8U);
}

TEST(Gguf, ReadsVersion2AndAnEmptyFile) {
  GgufBuilder builder;
  builder.version = 2;
  const Bytes bytes = builder.build();
  const auto file = GgufFile::parse(bytes.view());
  ASSERT_TRUE(file);
  EXPECT_EQ(file->version(), 2U);
  EXPECT_TRUE(file->tensors().empty());
}

TEST(Gguf, DistinguishesMissingKeysFromWrongTypes) {
  const Bytes bytes = small_gguf().build();
  const auto file = GgufFile::parse(bytes.view());
  ASSERT_TRUE(file);
  EXPECT_EQ(file->get<std::uint32_t>("none").error().field, "none");
  EXPECT_EQ(file->get_optional<std::uint32_t>("none").value(), std::nullopt);
  EXPECT_EQ(file->get_or<std::uint32_t>("none", 7U).value(), 7U);
  EXPECT_EQ(file->get_or<std::string>("none", "x").value(), "x");
  EXPECT_FALSE(file->get_or<std::uint32_t>("a.f32", 7U));
  EXPECT_FALSE(file->get<float>("a.u32"));
  EXPECT_FALSE(file->get<bool>("a.u32"));
  EXPECT_FALSE(file->get<std::string>("a.u32"));
  EXPECT_FALSE(file->get<std::int32_t>("a.ints"));
  EXPECT_FALSE(file->get_array<std::int32_t>("a.u32"));
  EXPECT_FALSE(file->get_array<std::string_view>("a.ints"));
  EXPECT_FALSE(file->get_array<float>("a.strings"));
}

TEST(Gguf, RefusesIntegersOutOfRange) {
  const Bytes bytes = small_gguf().build();
  const auto file = GgufFile::parse(bytes.view());
  ASSERT_TRUE(file);
  EXPECT_FALSE(file->get<std::int32_t>("a.u32"));
  EXPECT_FALSE(file->get<std::uint64_t>("a.i8"));
  EXPECT_FALSE(file->get_array<std::uint32_t>("a.ints"));
  const Error error = file->get<std::uint8_t>("a.u32").error();
  EXPECT_NE(error.message.find("4000000000"), std::string::npos);
}

TEST(Gguf, LocatesTensors) {
  const Bytes bytes = small_gguf().build();
  const auto file = GgufFile::parse(bytes.view());
  ASSERT_TRUE(file);
  ASSERT_EQ(file->tensors().size(), 2U);
  const GgufTensor* first = file->find_tensor("first");
  const GgufTensor* second = file->find_tensor("second");
  ASSERT_TRUE(first && second);
  EXPECT_EQ(file->find_tensor("third"), nullptr);
  EXPECT_EQ(first->columns(), 4U);
  EXPECT_EQ(first->rows(), 3U);
  EXPECT_EQ(first->data.size(), 48U);
  EXPECT_EQ(second->data.size(), 80U);
  EXPECT_EQ(second->data.data(), first->data.data() + 64);
  EXPECT_EQ(second->data.data() + second->data.size(), bytes.view().data() + bytes.size());
}

TEST(Gguf, UsesTheAlignmentOfTheFile) {
  GgufBuilder builder;
  builder.scalar("general.alignment", GgufValueType::u32, std::uint32_t{8});
  builder.tensor("a", GgmlType::f32, {1}, 0).tensor("b", GgmlType::f32, {1}, 8);
  builder.alignment = 8;
  builder.data_bytes = 12;
  const Bytes bytes = builder.build();
  const auto file = GgufFile::parse(bytes.view());
  ASSERT_TRUE(file) << file.error().to_string();
  EXPECT_EQ(file->tensors()[1].data.data() + 4, bytes.view().data() + bytes.size());
}

TEST(Gguf, RefusesEveryTruncation) {
  const Bytes bytes = small_gguf().build();
  for (std::size_t size = 0; size < bytes.size(); ++size) {
    // The copy is separate, so that the sanitizer detects a read past the end.
    const std::vector<std::byte> cut(bytes.view().begin(), bytes.view().begin() + static_cast<std::ptrdiff_t>(size));
    const auto file = GgufFile::parse(cut);
    ASSERT_FALSE(file) << size;
    EXPECT_EQ(file.error().code, ErrorCode::corrupt) << size;
  }
}

TEST(Gguf, AnyChangedByteGivesAFileOrAnError) {
  const Bytes bytes = small_gguf().build();
  std::mt19937 random(1);
  for (int round = 0; round < 20000; ++round) {
    std::vector<std::byte> copy(bytes.view().begin(), bytes.view().end());
    for (int i = 0; i < 3; ++i) copy[random() % copy.size()] = static_cast<std::byte>(random());
    const auto file = GgufFile::parse(copy);
    if (!file) {
      EXPECT_FALSE(file.error().message.empty());
      continue;
    }
    for (const GgufTensor& tensor : file->tensors()) {
      EXPECT_GE(tensor.data.data(), copy.data());
      EXPECT_LE(tensor.data.data() + tensor.data.size(), copy.data() + copy.size());
    }
  }
}

TEST(CorruptGguf, Header) {
  GgufBuilder magic = small_gguf();
  magic.magic = "GGML";
  expect_corrupt(magic, "magic", "not a GGUF file");
  GgufBuilder keys = small_gguf();
  keys.extra_metadata = std::int64_t{1} << 60;
  expect_corrupt(keys, "metadata_kv_count", "cannot fit");
  GgufBuilder tensors = small_gguf();
  tensors.extra_tensors = std::int64_t{1} << 60;
  expect_corrupt(tensors, "tensor_count", "cannot fit");
}

// A metadata entry has at least 13 bytes, a tensor at least 24. The header takes 24 bytes.
TEST(CorruptGguf, CountsMustFitInTheFile) {
  struct Counts {
    std::uint64_t num_tensors, num_metadata;
    std::size_t num_bytes;
    std::string_view field;
  };
  for (const Counts& counts : {Counts{0, 2, 26, "metadata[0].key"},
                               {0, 3, 26, "metadata_kv_count"},
                               {0, 2, 25, "metadata_kv_count"},
                               {2, 0, 48, "tensors[0].name"},
                               {3, 0, 48, "tensor_count"},
                               {2, 0, 47, "tensor_count"},
                               {0, 1, 0, "metadata_kv_count"},
                               {1, 0, 0, "tensor_count"}}) {
    Bytes bytes;
    bytes.raw("GGUF").number<std::uint32_t>(3).number(counts.num_tensors).number(counts.num_metadata);
    bytes.resize(bytes.size() + counts.num_bytes);
    const Error error = error_of(bytes);
    EXPECT_EQ(error.code, ErrorCode::corrupt);
    EXPECT_EQ(error.field, counts.field) << counts.num_tensors << ' ' << counts.num_metadata << ' ' << counts.num_bytes;
    if (error.field.ends_with("_count"))
      EXPECT_EQ(error.message,
                fmt::format("{} entries cannot fit in a file of {} bytes", counts.num_tensors + counts.num_metadata, bytes.size()));
  }
}

// The file is large enough for the entries if each had its minimum size, but the entries are missing.
TEST(CorruptGguf, AbsurdCountsTakeNoMemoryEvenInALargeFile) {
  constexpr std::uint64_t kFileBytes = std::uint64_t{1} << 40;  // a sparse file
  const TempFolder folder;
  for (const bool of_tensors : {false, true}) {
    Bytes header;
    header.raw("GGUF").number<std::uint32_t>(3);
    header.number<std::uint64_t>(of_tensors ? kFileBytes / 25 : 0).number<std::uint64_t>(of_tensors ? 0 : kFileBytes / 14);
    const std::string path = folder.write("absurd.gguf", header.as_text());
    std::filesystem::resize_file(path, kFileBytes);
    const auto file = GgufFile::open(path);
    ASSERT_FALSE(file.has_value());
    EXPECT_EQ(file.error().code, ErrorCode::corrupt) << file.error().to_string();
    EXPECT_NE(file.error().field.find(of_tensors ? "tensors[0]" : "metadata[0]"), std::string::npos) << file.error().to_string();
  }
}

TEST(CorruptGguf, Versions) {
  for (const std::uint32_t version : {0U, 1U, 4U, 0x03000000U}) {
    GgufBuilder builder = small_gguf();
    builder.version = version;
    EXPECT_EQ(error_of(builder).code, ErrorCode::unsupported) << version;
  }
  GgufBuilder big = small_gguf();
  big.version = 0x03000000U;
  EXPECT_NE(error_of(big).message.find("big-endian"), std::string::npos);
}

TEST(CorruptGguf, Keys) {
  GgufBuilder twice = small_gguf();
  twice.string("general.architecture", "other");
  expect_corrupt(twice, "general.architecture", "twice");
  GgufBuilder empty = small_gguf();
  empty.string("", "x");
  expect_corrupt(empty, "metadata[8].key", "got 0");
  GgufBuilder type = small_gguf();
  type.scalar("odd", static_cast<GgufValueType>(13), std::uint32_t{0});
  expect_corrupt(type, "odd", "unknown value type 13");
}

TEST(CorruptGguf, AKeyWithControlCharactersIsShownEscaped) {
  GgufBuilder builder = small_gguf();
  builder.string("a\x1b[31m", "x").string("a\x1b[31m", "y");
  expect_corrupt(builder, "'a\\x1b[31m'", "twice");
}

TEST(CorruptGguf, Lengths) {
  for (const std::uint64_t length : {std::uint64_t{1} << 20, std::uint64_t{1} << 63, ~std::uint64_t{0}}) {
    GgufBuilder string;
    string.metadata.text("s").number(GgufValueType::string).number(length).raw("padding padding");
    string.num_metadata = 1;
    expect_corrupt(string, "s", "ends inside");
    for (const GgufValueType element : {GgufValueType::u8, GgufValueType::u64, GgufValueType::string}) {
      GgufBuilder array;
      array.metadata.text("list").number(GgufValueType::array).number(element).number(length).raw("padding");
      array.num_metadata = 1;
      expect_corrupt(array, "list", "ends inside");
    }
  }
}

TEST(CorruptGguf, NestedArrays) {
  const auto nested = [](int depth) {
    GgufBuilder builder;
    builder.metadata.text("deep").number(GgufValueType::array);
    for (int i = 1; i < depth; ++i) builder.metadata.number(GgufValueType::array).number<std::uint64_t>(1);
    builder.metadata.number(GgufValueType::u8).number<std::uint64_t>(1).number<std::uint8_t>(9);
    builder.num_metadata = 1;
    return builder;
  };
  const Bytes four = nested(4).build();
  EXPECT_TRUE(GgufFile::parse(four.view()));
  expect_corrupt(nested(5), "deep", "nested");
  expect_corrupt(nested(100000), "deep", "nested");
}

TEST(CorruptGguf, ABoolIsZeroOrOne) {
  GgufBuilder builder;
  builder.scalar("flag", GgufValueType::boolean, std::uint8_t{2});
  const Bytes bytes = builder.build();
  const auto file = GgufFile::parse(bytes.view());
  ASSERT_TRUE(file);
  EXPECT_EQ(file->get<bool>("flag").error().code, ErrorCode::corrupt);
}

TEST(CorruptGguf, Alignment) {
  for (const std::uint32_t alignment : {0U, 3U, 33U, 1U << 21, 0x80000000U}) {
    GgufBuilder builder = small_gguf();
    builder.scalar("general.alignment", GgufValueType::u32, alignment);
    expect_corrupt(builder, "general.alignment", "power of two");
  }
  GgufBuilder text = small_gguf();
  text.string("general.alignment", "32");
  expect_corrupt(text, "general.alignment", "expected an integer");
}

TEST(CorruptGguf, TensorNames) {
  GgufBuilder twice = small_gguf();
  twice.tensor("first", GgmlType::f32, {1}, 0);
  expect_corrupt(twice, "first", "twice");
  GgufBuilder empty = small_gguf();
  empty.tensor("", GgmlType::f32, {1}, 0);
  expect_corrupt(empty, "tensors[2].name", "got 0");
}

TEST(CorruptGguf, TensorShapes) {
  const std::uint64_t huge = std::uint64_t{1} << 62;
  struct Lie {
    std::vector<std::uint64_t> dims;
    GgmlType type;
    std::string_view message;
  };
  for (const Lie& lie : {Lie{{1, 1, 1, 1, 1}, GgmlType::f32, "dimensions"}, Lie{{0}, GgmlType::f32, "dimension is 0"},
                         Lie{{huge, 8}, GgmlType::f32, "overflows"}, Lie{{huge}, GgmlType::f32, "overflows"},
                         Lie{{32, std::uint64_t{1} << 58, 2}, GgmlType::q8_0, "overflows"},
                         Lie{{huge, huge, huge, huge}, GgmlType::f32, "overflows"}, Lie{{33}, GgmlType::q4_0, "multiple of 32"},
                         Lie{{128, 2}, GgmlType::q4_k, "multiple of 256"}, Lie{{1024}, GgmlType::f32, "exceeds"}}) {
    GgufBuilder builder = small_gguf();
    builder.tensor("lie", lie.type, lie.dims, 0);
    expect_corrupt(builder, "lie", lie.message);
  }
}

TEST(CorruptGguf, TensorOffsets) {
  const auto with_offset = [](std::uint64_t offset) {
    GgufBuilder builder = small_gguf();
    builder.tensor("lie", GgmlType::f32, {1}, offset);
    return builder;
  };
  expect_corrupt(with_offset(1), "lie", "alignment");
  expect_corrupt(with_offset(std::uint64_t{1} << 40), "lie", "exceeds");
  expect_corrupt(with_offset(~std::uint64_t{31}), "lie", "exceeds");
  expect_corrupt(with_offset(32), "lie", "overlap");
  GgufBuilder fits = small_gguf();
  fits.tensor("last", GgmlType::f32, {4}, 160);
  fits.data_bytes = 176;
  EXPECT_TRUE(GgufFile::parse(fits.build().view()));
}

TEST(CorruptGguf, UnknownTensorType) {
  for (const std::uint32_t type : {4U, 31U, 99U, ~0U}) {
    GgufBuilder builder = small_gguf();
    builder.tensors.push_back({"lie", type, {1}, 0});
    const Error error = error_of(builder);
    EXPECT_EQ(error.code, ErrorCode::unsupported);
    EXPECT_NE(error.message.find(std::to_string(type)), std::string::npos);
  }
}

// Builds a part as llama-gguf-split writes it: the first part has the metadata, and may have no tensors.
GgufBuilder part_of(std::uint16_t number, std::uint16_t count, const std::string& tensor, std::int32_t total = 2) {
  GgufBuilder builder;
  if (number == 0) builder.string("general.architecture", "llama");
  builder.scalar("split.no", GgufValueType::u16, number);
  builder.scalar("split.count", GgufValueType::u16, count);
  builder.scalar("split.tensors.count", GgufValueType::i32, total);
  if (!tensor.empty()) builder.tensor(tensor, GgmlType::f32, {4}, 0);
  builder.data_bytes = 32;
  return builder;
}

Error error_of_open(const std::string& path) {
  const auto file = GgufFile::open(path);
  EXPECT_FALSE(file) << path;
  return file ? Error{} : file.error();
}

TEST(Gguf, ReadsAllPartsOfASplitModelFromAnyPart) {
  const testing::TempFolder folder;
  const std::array tensors{"", "a", "b"};
  std::vector<std::string> paths;
  for (std::uint16_t i = 0; i < 3; ++i)
    paths.push_back(folder.write(fmt::format("m-0000{}-of-00003.gguf", i + 1), part_of(i, 3, tensors[i]).build().as_text()));
  for (const std::string& path : paths) {
    const auto file = GgufFile::open(path);
    ASSERT_TRUE(file) << file.error().to_string();
    EXPECT_EQ(file->get<std::string>("general.architecture").value(), "llama");
    ASSERT_EQ(file->files().size(), 3U);
    EXPECT_EQ(file->files()[0].path(), paths[0]) << "in order, whichever part was given";
    for (std::size_t i : {1U, 2U}) {
      const GgufTensor* tensor = file->find_tensor(tensors[i]);
      ASSERT_NE(tensor, nullptr);
      EXPECT_TRUE(file->files()[i].contains(tensor->data));
    }
  }
  EXPECT_EQ(gguf_stem(paths[1]), "m");
  EXPECT_EQ(gguf_stem("x/a-00001-of-2.gguf"), "a-00001-of-2");
  EXPECT_EQ(gguf_stem("-00001-of-00003.gguf"), "-00001-of-00003");
}

TEST(Gguf, RefusesInvalidPartsAndReportsTheFile) {
  const testing::TempFolder folder;
  const std::string first = folder.write("m-00001-of-00002.gguf", part_of(0, 2, "a").build().as_text());
  const std::string second = folder.path() + "/m-00002-of-00002.gguf";
  const Error missing = error_of_open(first);
  EXPECT_EQ(missing.code, ErrorCode::not_found);
  EXPECT_EQ(missing.field, second);
  for (const auto& [other, named] :
       std::vector<std::pair<GgufBuilder, std::string>>{{part_of(1, 2, "a"), "'a'"},       // a duplicate tensor
                                                        {part_of(0, 2, "b"), "split.no"},  // the first part again
                                                        {part_of(1, 3, "b"), "split.no"},  // a part of another model
                                                        {part_of(7, 2, "b"), "split.no"},  // a part number out of range
                                                        {GgufBuilder{}, "split.no"}}) {    // not a part
    folder.write("m-00002-of-00002.gguf", other.build().as_text());
    const Error error = error_of_open(first);
    EXPECT_EQ(error.code, ErrorCode::corrupt) << named;
    EXPECT_EQ(error.field, second + ": " + named);
  }
  folder.write("m-00001-of-00002.gguf", part_of(0, 2, "a", 3).build().as_text());
  folder.write("m-00002-of-00002.gguf", part_of(1, 2, "b").build().as_text());
  EXPECT_EQ(error_of_open(first).field, first + ": split.tensors.count");
  const Error renamed = error_of_open(folder.write("other.gguf", part_of(0, 2, "a").build().as_text()));
  EXPECT_NE(renamed.message.find("-00001-of-00002.gguf"), std::string::npos) << renamed.to_string();
}

TEST(Gguf, OpenReportsTheFileInErrors) {
  const testing::TempFolder folder;
  const std::string path = folder.write("bad.gguf", "GGUF\x03");
  const auto file = GgufFile::open(path);
  ASSERT_FALSE(file);
  EXPECT_NE(file.error().field.find(path), std::string::npos);
  EXPECT_EQ(GgufFile::open(folder.path() + "/none.gguf").error().code, ErrorCode::not_found);
}

TEST(Gguf, ViewsSurviveAMove) {
  const testing::TempFolder folder;
  auto file = GgufFile::open(folder.write("good.gguf", small_gguf().build().as_text()));
  ASSERT_TRUE(file);
  const GgufFile moved(std::move(*file));
  EXPECT_EQ(moved.get<std::string_view>("general.architecture").value(), "llama");
  EXPECT_EQ(moved.find_tensor("second")->data[0], std::byte{0});
  EXPECT_TRUE(moved.files()[0].check_unchanged());
}

TEST(GgmlTypes, NumbersAndEnumeratorsAgree) {
  for (std::uint32_t number = 0; number < 100; ++number) {
    const GgmlTypeInfo* info = find_ggml_type(number);
    if (!info) continue;
    EXPECT_EQ(static_cast<std::uint32_t>(info->type), number);
    EXPECT_FALSE(info->name.empty());
    EXPECT_EQ(row_bytes(info->type, 4 * info->block_columns).value(), 4 * info->block_bytes);
    if (info->block_columns > 1) EXPECT_FALSE(row_bytes(info->type, info->block_columns + 1));
  }
  EXPECT_EQ(find_ggml_type(4), nullptr);
}

}  // namespace
}  // namespace quire
