// Tests the lines of a file: their numbers, their length, and damaged compressed files.
#include "lab/workload/line_reader.h"

#include <fmt/format.h>

#include <cstdlib>

#include "lab/lab_support.h"

namespace quire {
namespace {

using test::TextFile;

// Returns the number and the length of each line, or the error.
std::string numbered_lines(const std::string& path) {
  auto reader = LineReader::open(path);
  if (!reader) return reader.error().to_string();
  EXPECT_EQ(reader->path(), path);
  std::string text;
  for (;;) {
    const auto more = reader->next();
    if (!more) return text + more.error().message;
    if (!*more) return text;
    const std::string field = reader->error("x", "y").field;
    EXPECT_TRUE(field.starts_with(path + ":"));
    text += fmt::format("{}:{} ", field.substr(path.size() + 1),
                        reader->line().size() > 8 ? std::to_string(reader->line().size()) : reader->line());
  }
}

TEST(LineReader, SkipsEmptyLinesAndCountsThem) {
  const std::pair<std::string, const char*> files[] = {{"", ""},
                                                       {"\n\r\n\n", ""},
                                                       {"a", "1:a "},
                                                       {"a\n", "1:a "},
                                                       {"a\r\nb\r\n", "1:a 2:b "},
                                                       {"\n\na\n\nb\r\n\r\nc", "3:a 5:b 7:c "},
                                                       {"a\rb\n\r", "1:a\rb "}};
  for (const auto& [text, lines] : files) EXPECT_EQ(numbered_lines(TextFile(text).path()), lines) << text;
}

// The file is read in pieces of 256 KiB.
TEST(LineReader, LinesMayBeLongerThanAPiece) {
  constexpr std::size_t kPiece = std::size_t{256} << 10U;
  for (const std::size_t length : {kPiece - 1, kPiece, kPiece + 1, 3 * kPiece}) {
    const std::string line(length, 'x');
    EXPECT_EQ(numbered_lines(TextFile("a\n" + line + "\nb\n" + line).path()), fmt::format("1:a 2:{0} 3:b 4:{0} ", length));
    EXPECT_EQ(numbered_lines(TextFile(line + "\n\nb").path()), fmt::format("1:{} 3:b ", length));
  }
  EXPECT_EQ(numbered_lines(TextFile(std::string(std::size_t{64} << 20U, 'x') + "\n").path()), "1:67108864 ");
}

TEST(LineReader, RefusesDamagedCompressedFiles) {
  const TextFile text("{\"a\": 1, \"b\": 2, \"c\": 3}\n{\"a\": 7}\n");
  const std::string packed = text.path() + ".gz";
  ASSERT_EQ(std::system(fmt::format("gzip -c '{}' > '{}'", text.path(), packed).c_str()), 0);
  const auto whole = LineReader::open(packed);
  if (whole) {
    EXPECT_EQ(numbered_lines(packed), "1:24 2:{\"a\": 7} ");
    std::fstream file(packed, std::ios::binary | std::ios::in | std::ios::out);
    file.seekp(-8, std::ios::end).put('\x55').put('\x55');  // the checksum
    file.close();
    auto damaged = LineReader::open(packed);
    ASSERT_TRUE(damaged.has_value());
    Result<bool> more = true;
    while (more && *more) more = damaged->next();
    ASSERT_FALSE(more.has_value());
    EXPECT_EQ(more.error().code, ErrorCode::corrupt);
    EXPECT_EQ(more.error().field, packed);
    EXPECT_TRUE(more.error().message.starts_with("is a corrupted or truncated gzip file: ")) << more.error().message;
  }
  unlink(packed.c_str());
  EXPECT_EQ(numbered_lines("/nowhere/x"), "/nowhere/x: cannot be opened; use a file that exists and that you can read");
  EXPECT_EQ(numbered_lines("/tmp"), "/tmp: cannot be opened; use a file that exists and that you can read");
}

}  // namespace
}  // namespace quire
