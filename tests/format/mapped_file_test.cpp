#include "format/mapped_file.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <array>
#include <filesystem>
#include <iterator>
#include <optional>

#include "format/temp_folder.h"

namespace quire {
namespace {

using testing::TempFolder;

std::string text_of(const MappedFile& file) {
  return {reinterpret_cast<const char*>(file.bytes().data()), file.bytes().size()};
}

TEST(MappedFile, ShowsTheBytesOfTheFile) {
  const TempFolder folder;
  const auto file = MappedFile::open(folder.write("a", std::string("one\0two", 7)));
  ASSERT_TRUE(file);
  EXPECT_EQ(text_of(*file), std::string("one\0two", 7));
  EXPECT_TRUE(file->check_unchanged());
}

TEST(MappedFile, BytesKeepTheirAddressWhenMoved) {
  const TempFolder folder;
  auto first = MappedFile::open(folder.write("a", "first"));
  auto second = MappedFile::open(folder.write("b", "second"));
  ASSERT_TRUE(first && second);
  const std::byte* address = first->bytes().data();
  *second = std::move(*first);
  EXPECT_EQ(second->bytes().data(), address);
  const MappedFile third(std::move(*second));
  EXPECT_EQ(text_of(third), "first");
}

std::ptrdiff_t num_open_descriptors() {
  return std::distance(std::filesystem::directory_iterator("/proc/self/fd"), std::filesystem::directory_iterator());
}

TEST(MappedFile, ClosesItsDescriptorOnce) {
  const TempFolder folder;
  const std::string path = folder.write("a", "text"), empty = folder.write("empty", "");
  const std::ptrdiff_t before = num_open_descriptors();
  {
    auto first = MappedFile::open(path), second = MappedFile::open(empty);
    ASSERT_TRUE(first && second);
    EXPECT_EQ(num_open_descriptors(), before + 2);
    *first = std::move(*second);
    EXPECT_EQ(num_open_descriptors(), before + 1);
    const MappedFile third(std::move(*first));
    EXPECT_EQ(num_open_descriptors(), before + 1);
  }
  EXPECT_EQ(num_open_descriptors(), before);
  EXPECT_FALSE(MappedFile::open(folder.path()));
  EXPECT_EQ(num_open_descriptors(), before) << "a folder is opened, and closed again";
}

// A process without standard input gives its descriptor, 0, to the next file.
TEST(MappedFile, ClosesDescriptorZero) {
  const TempFolder folder;
  const std::string path = folder.write("a", "text");
  const int input = ::dup(STDIN_FILENO);
  ::close(STDIN_FILENO);
  auto file = std::optional(MappedFile::open(path));
  const bool is_used = ::fcntl(STDIN_FILENO, F_GETFD) != -1;
  file.reset();
  const bool is_closed = ::fcntl(STDIN_FILENO, F_GETFD) == -1;
  if (input >= 0) {
    ::dup2(input, STDIN_FILENO);
    ::close(input);
  }
  EXPECT_TRUE(is_used);
  EXPECT_TRUE(is_closed);
}

TEST(MappedFile, AnEmptyFileIsAnEmptySpan) {
  const TempFolder folder;
  const auto file = MappedFile::open(folder.write("empty", ""));
  ASSERT_TRUE(file);
  EXPECT_TRUE(file->bytes().empty());
}

TEST(MappedFile, ReportsWhyItCannotOpen) {
  const TempFolder folder;
  EXPECT_EQ(MappedFile::open(folder.path() + "/none").error().code, ErrorCode::not_found);
  const auto directory = MappedFile::open(folder.path());
  ASSERT_FALSE(directory);
  EXPECT_EQ(directory.error().code, ErrorCode::io);
  EXPECT_EQ(directory.error().field, folder.path());
}

TEST(MappedFile, DetectsThatTheFileWasTruncated) {
  const TempFolder folder;
  const std::string path = folder.write("a", "a longer text");
  const auto file = MappedFile::open(path);
  ASSERT_TRUE(file);
  std::filesystem::resize_file(path, 3);
  const auto check = file->check_unchanged();
  ASSERT_FALSE(check);
  EXPECT_EQ(check.error().code, ErrorCode::io);
}

TEST(MappedFile, ReadsPartsOfATruncatedFile) {
  const TempFolder folder;
  const std::string path = folder.write("a", "a longer text");
  const auto file = MappedFile::open(path);
  ASSERT_TRUE(file);
  const auto all = file->bytes();
  std::array<std::byte, 4> out{};
  ASSERT_TRUE(file->read(all.subspan(2, 4), out));
  EXPECT_EQ(std::string(reinterpret_cast<const char*>(out.data()), 4), "long");
  EXPECT_TRUE(file->contains(all));
  EXPECT_FALSE(file->contains(out));
  std::filesystem::resize_file(path, 5);
  EXPECT_TRUE(file->read(all.first(4), out)) << "these bytes remain";
  const auto beyond = file->read(all.subspan(3, 4), out);
  ASSERT_FALSE(beyond);
  EXPECT_EQ(beyond.error().code, ErrorCode::io);
  EXPECT_EQ(beyond.error().field, path);
  EXPECT_DEATH((void)file->read(out, out), "the part lies inside the map");
}

TEST(ReadTextFile, HasALimit) {
  const TempFolder folder;
  const std::string path = folder.write("a", "12345");
  EXPECT_EQ(read_text_file(path, 5).value(), "12345");
  EXPECT_EQ(read_text_file(path, 4).error().code, ErrorCode::too_large);
  EXPECT_EQ(read_text_file(folder.write("b", ""), 4).value(), "");
}

}  // namespace
}  // namespace quire
