#include "hub/hub_cache.h"

#include <gtest/gtest.h>
#include <stdlib.h>

#include <algorithm>
#include <filesystem>
#include <fstream>

#include "hub/partial_file.h"

namespace quire {
namespace {

namespace fs = std::filesystem;

const std::string kCommit(40, 'c'), kNewer(40, 'd');

class HubCacheFolder : public testing::Test {
 protected:
  void SetUp() override {
    std::string name = testing::TempDir() + "quire_hub_XXXXXX";
    ASSERT_NE(mkdtemp(name.data()), nullptr);
    root = name;
  }
  void TearDown() override { fs::remove_all(root); }

  // Adds a file to a snapshot; its digest is a function of its content.
  HubFile add(const std::string& repo, const std::string& commit, const std::string& path, const std::string& content) {
    HubFile file{.path = path, .size = content.size(), .digest = std::string(40, static_cast<char>('a' + content.size() % 6))};
    const fs::path blob = cache().blob_path(repo, file.digest);
    fs::create_directories(blob.parent_path());
    std::ofstream(blob) << content;
    EXPECT_TRUE(cache().link(repo, commit, file));
    return file;
  }
  [[nodiscard]] HubCache cache() const { return {root / "hub", root / "urls"}; }

  fs::path root;
};

std::vector<std::string> names_of(const std::vector<CachedModel>& models) {
  std::vector<std::string> names;
  for (const CachedModel& model : models) names.push_back(model.name + (model.is_complete ? "" : " (incomplete)"));
  return names;
}

TEST_F(HubCacheFolder, LinksFilesOfFoldersToTheirBlobs) {
  const HubFile file = add("org/repo", kCommit, "a/b/m-Q8_0.gguf", "12345");
  const fs::path link = cache().snapshot_folder("org/repo", kCommit) / "a/b/m-Q8_0.gguf";
  EXPECT_EQ(link, root / "hub/models--org--repo/snapshots" / kCommit / "a/b/m-Q8_0.gguf");
  EXPECT_EQ(fs::read_symlink(link), fs::path("../../../../blobs") / file.digest);
  EXPECT_EQ(fs::file_size(link), 5U);
  EXPECT_TRUE(cache().link("org/repo", kCommit, file)) << "a link that is there stays";
}

TEST_F(HubCacheFolder, ReplacesALinkToAnotherBlob) {
  add("org/repo", kCommit, "m.gguf", "12345");
  add("org/repo", kCommit, "m.gguf", "1234567");
  EXPECT_EQ(fs::file_size(cache().snapshot_folder("org/repo", kCommit) / "m.gguf"), 7U);
}

TEST_F(HubCacheFolder, FindsTheSnapshotOfTheMainBranchFirst) {
  add("org/repo", kCommit, "m-Q8_0.gguf", "12345");
  add("org/repo", kNewer, "m-Q8_0.gguf", "1234567");
  ASSERT_TRUE(cache().set_main("org/repo", kCommit));
  EXPECT_EQ(cache().find({"org/repo"})->path, cache().snapshot_folder("org/repo", kCommit) / "m-Q8_0.gguf");
  ASSERT_TRUE(cache().set_main("org/repo", kNewer));
  EXPECT_EQ(cache().find({"org/repo"})->path, cache().snapshot_folder("org/repo", kNewer) / "m-Q8_0.gguf");
  EXPECT_EQ(cache().find({"org/repo"})->name, "org/repo:Q8_0");
}

TEST_F(HubCacheFolder, FindsACompleteModelInAnOlderSnapshot) {
  add("org/repo", kCommit, "config.json", "{}");
  add("org/repo", kCommit, "model.safetensors", "12345");
  add("org/repo", kNewer, "config.json", "{ }");
  ASSERT_TRUE(cache().set_main("org/repo", kNewer));
  EXPECT_EQ(cache().find({"org/repo"})->path, cache().snapshot_folder("org/repo", kCommit));
  EXPECT_FALSE(cache().find({"org/repo"})->has_tokenizer);
}

TEST_F(HubCacheFolder, DoesNotFindModelsWithMissingParts) {
  add("org/repo", kCommit, "m-Q8_0-00001-of-00002.gguf", "1");
  EXPECT_FALSE(cache().find({"org/repo"}));
  const HubFile second = add("org/repo", kCommit, "m-Q8_0-00002-of-00002.gguf", "12");
  EXPECT_EQ(cache().find({"org/repo"})->num_files, 2U);
  fs::remove(cache().blob_path("org/repo", second.digest));
  EXPECT_FALSE(cache().find({"org/repo"})) << "the link is dead";
  EXPECT_FALSE(cache().find({"org/other"}));
}

TEST_F(HubCacheFolder, IgnoresAReferenceThatIsNotACommit) {
  add("org/repo", kCommit, "m.gguf", "1");
  fs::create_directories(root / "hub/models--org--repo/refs");
  std::ofstream(root / "hub/models--org--repo/refs/main") << "../../../etc";
  EXPECT_EQ(cache().find({"org/repo"})->path, cache().snapshot_folder("org/repo", kCommit) / "m.gguf");
}

TEST_F(HubCacheFolder, ListsModelsByTheNamesThatFindThem) {
  add("org/two", kCommit, "m-Q8_0.gguf", "12345");
  add("org/two", kCommit, "m-Q4_0.gguf", "1234");
  add("org/two", kCommit, "mmproj-F16.gguf", "1");
  add("org/folder", kCommit, "config.json", "{}");
  add("org/folder", kCommit, "model.safetensors", "12345");
  fs::create_directories(root / "hub/models--org--begun/blobs");
  std::ofstream(root / "hub/models--org--begun/blobs/x.incomplete") << "1";
  fs::create_directories(root / "hub/datasets--org--data");
  EXPECT_EQ(names_of(cache().list()),
            (std::vector<std::string>{"org/begun (incomplete)", "org/folder", "org/two:Q4_0", "org/two:Q8_0", "org/two:mmproj-F16.gguf"}));
  for (const CachedModel& model : cache().list()) {
    const auto name = parse_model_name(model.name, "https://hub.example");
    ASSERT_TRUE(name && std::holds_alternative<HubName>(*name));
    if (model.is_complete) EXPECT_EQ(cache().find(std::get<HubName>(*name))->path, model.path) << model.name;
  }
}

TEST_F(HubCacheFolder, RemovesAQuantizationAndKeepsSharedBlobs) {
  const HubFile only = add("org/repo", kCommit, "m-Q8_0.gguf", "12345");
  add("org/repo", kCommit, "m-Q4_0.gguf", "123456");
  const HubFile shared = add("org/repo", kCommit, "m-Q5_0.gguf", "1234567");
  add("org/repo", kNewer, "other-Q6_K.gguf", "1234567");
  EXPECT_EQ(cache().remove({"org/repo", "Q8_0"}).value_or(0), 5U);
  EXPECT_FALSE(fs::exists(cache().blob_path("org/repo", only.digest)));
  EXPECT_EQ(cache().remove({"org/repo", "Q5_0"}).value_or(1), 0U) << "another snapshot uses the blob";
  EXPECT_TRUE(fs::exists(cache().blob_path("org/repo", shared.digest)));
  EXPECT_EQ(names_of(cache().list()), (std::vector<std::string>{"org/repo:Q4_0", "org/repo:Q6_K"}));
  EXPECT_EQ(cache().remove({"org/repo", "Q8_0"}).error().code, ErrorCode::not_found);
}

TEST_F(HubCacheFolder, NeverRemovesATargetOutsideTheRepository) {
  std::ofstream(root / "mine") << "12345";
  const fs::path snapshot = cache().snapshot_folder("org/repo", kCommit);
  fs::create_directories(snapshot);
  fs::create_symlink(root / "mine", snapshot / "m-Q8_0.gguf");
  EXPECT_EQ(cache().remove({"org/repo", "Q8_0"}).value_or(1), 0U);
  EXPECT_TRUE(fs::exists(root / "mine"));
  fs::create_directories(snapshot);
  fs::create_symlink(root / "mine", snapshot / "m-Q8_0.gguf");
  EXPECT_TRUE(cache().remove({"org/repo"}));
  EXPECT_TRUE(fs::exists(root / "mine"));
  EXPECT_FALSE(fs::exists(root / "hub/models--org--repo"));
}

TEST_F(HubCacheFolder, NamesFilesOfUrlsInTheirFolder) {
  const fs::path path = cache().url_path("https://h.example/a/../m%2F..gguf?x=/../y#sha256=00");
  EXPECT_EQ(path.parent_path().parent_path(), root / "urls");
  EXPECT_EQ(path.filename(), "m_2F..gguf");
  EXPECT_EQ(cache().url_path("https://h.example/m.gguf#sha256=00"), cache().url_path("https://h.example/m.gguf"));
  EXPECT_NE(cache().url_path("https://h.example/m.gguf"), cache().url_path("https://i.example/m.gguf"));
  EXPECT_EQ(cache().url_path("https://h.example/..").filename(), "model..");
}

std::string digest_of(FileDigest::Kind kind, std::string_view text) {
  FileDigest digest(kind, text.size());
  digest.update(std::as_bytes(std::span(text)));
  return digest.finish();
}

TEST(FileDigest, ComputesTheDigestsOfTheHub) {
  EXPECT_EQ(digest_of(FileDigest::Kind::sha256, "abc"), "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
  // git hash-object: "hello\n", and an empty file.
  EXPECT_EQ(digest_of(FileDigest::Kind::git_sha1, "hello\n"), "ce013625030ba8dba906f756967f9e9ca394464a");
  EXPECT_EQ(digest_of(FileDigest::Kind::git_sha1, ""), "e69de29bb2d1d6434b8b29ae775ad8c2e48c5391");
}

TEST_F(HubCacheFolder, ContinuesAPartialFile) {
  const std::string_view text = "hello\n";
  const auto bytes = std::as_bytes(std::span(text));
  {
    auto file = PartialFile::open(root / "f.incomplete");
    ASSERT_TRUE(file);
    ASSERT_TRUE(file->append(bytes.first(2)));
  }
  auto file = PartialFile::open(root / "f.incomplete");
  ASSERT_TRUE(file);
  EXPECT_EQ(file->size(), 2U);
  FileDigest digest(FileDigest::Kind::git_sha1, text.size());
  ASSERT_TRUE(file->digest_into(digest));
  ASSERT_TRUE(file->append(bytes.subspan(2)));
  digest.update(bytes.subspan(2));
  EXPECT_EQ(digest.finish(), digest_of(FileDigest::Kind::git_sha1, text));
  ASSERT_TRUE(file->rename_to(root / "f"));
  EXPECT_EQ(fs::file_size(root / "f"), text.size());
}

}  // namespace
}  // namespace quire
