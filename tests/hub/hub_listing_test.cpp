#include "hub/hub_listing.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

namespace quire {
namespace {

const std::string kSha1(40, 'a'), kSha256(64, 'b');

std::string entry_of(const std::string& path, const std::string& oid = kSha1, const std::string& size = "7") {
  return fmt::format(R"([{{"type": "file", "path": "{}", "oid": "{}", "size": {}}}])", path, oid, size);
}

TEST(HubListing, ReadsFilesWithTheirDigests) {
  const auto files = parse_listing(fmt::format(
      R"([{{"type":"directory","path":"d"}}, {{"type":"file","path":"d/a.json","oid":"{0}","size":3}},
          {{"type":"file","path":"m.gguf","oid":"{0}","size":130,"lfs":{{"oid":"{1}","size":5000000000,"pointerSize":130}}}}])",
      kSha1, kSha256));
  ASSERT_TRUE(files) << files.error().to_string();
  ASSERT_EQ(files->size(), 2U);
  EXPECT_EQ((*files)[0].path, "d/a.json");
  EXPECT_EQ((*files)[0].digest, kSha1);
  EXPECT_FALSE((*files)[0].is_lfs);
  EXPECT_EQ((*files)[1].size, 5'000'000'000U) << "the size of the file, not of its pointer";
  EXPECT_EQ((*files)[1].digest, kSha256);
  EXPECT_TRUE((*files)[1].is_lfs);
}

TEST(HubListing, RefusesPathsThatLeaveTheRepository) {
  for (const char* path : {"", "/etc/passwd", "..", "../a", "a/../b", "a/..", "./a", "a//b", "a/", "a\\nb", "a\\u0000b"}) {
    const auto files = parse_listing(entry_of(path));
    ASSERT_FALSE(files) << path;
    EXPECT_EQ(files.error().code, ErrorCode::corrupt);
  }
  EXPECT_TRUE(parse_listing(entry_of("a..b/...c")));
  EXPECT_FALSE(is_safe_path(std::string(300, 'a')));
}

TEST(HubListing, RefusesDigestsThatAreNotHexadecimal) {
  for (const std::string& oid : {std::string(), std::string("../../x"), std::string(39, 'a'), std::string(40, 'A'), kSha256})
    EXPECT_FALSE(parse_listing(entry_of("a", oid))) << oid;
}

TEST(HubListing, RefusesSizesThatCannotBe) {
  for (const char* size : {"-1", "1.5", "1e30", "99999999999999999999", "18000000000000000", "null", "\"7\""})
    EXPECT_FALSE(parse_listing(entry_of("a", kSha1, size))) << size;
  EXPECT_TRUE(parse_listing(entry_of("a", kSha1, "17592186044416")));
}

TEST(HubListing, RefusesOtherJson) {
  for (const char* text : {"", "{}", "[1]", "[{}]", R"([{"type":"file"}])", R"([{"type":"file","path":"a","oid":3,"size":1}])"})
    EXPECT_FALSE(parse_listing(text)) << text;
}

TEST(HubListing, ReadsTheCommit) {
  EXPECT_EQ(parse_commit(fmt::format(R"({{"sha": "{}", "private": false}})", kSha1)).value_or(""), kSha1);
  EXPECT_FALSE(parse_commit(R"({"sha": "../../x"})"));
  EXPECT_FALSE(parse_commit("{}"));
}

TEST(HubListing, ReadsNamesOfRepositories) {
  EXPECT_EQ(parse_names(R"([{"id": "a/b"}, {"id": "no-owner"}, {"id": "../x"}, {"id": 3}, {}, {"id": "c/d"}])")
                .value_or(std::vector<std::string>()),
            (std::vector<std::string>{"a/b", "c/d"}));
  EXPECT_FALSE(parse_names("{}"));
}

TEST(HubListing, FindsTheNextPage) {
  EXPECT_EQ(next_page("<https://h/x?cursor=a>; rel=\"next\""), "https://h/x?cursor=a");
  EXPECT_EQ(next_page("<https://h/1>; rel=\"prev\", </2>; rel=\"next\""), "/2");
  EXPECT_EQ(next_page("<https://h/1>; rel=\"last\""), "");
  EXPECT_EQ(next_page(""), "");
  EXPECT_EQ(next_page("<<<>>>,,,"), "");
}

}  // namespace
}  // namespace quire
