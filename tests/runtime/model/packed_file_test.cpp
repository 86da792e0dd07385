// Files of packed weights: reads return the written data, changes are detected, and a folder stays within its budget.
#include "runtime/model/packed/packed_file.h"

#include <gtest/gtest.h>
#include <sys/file.h>
#include <sys/resource.h>
#include <sys/stat.h>

#include <csignal>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>
#include <vector>

#include "runtime/kernel/kernel_fixtures.h"
#include "runtime/model/packed/packed_folder.h"
#include "runtime/model/rig.h"
#include "runtime/model/tiny_model.h"

namespace quire {
namespace {

using kernel_test::random_matrix;
using kernel_test::Rng;
using kernel_test::weight_cases;

constexpr std::uint64_t kNoBound = std::uint64_t{1} << 40U;

Sha256Digest key_named(std::string_view name) {
  return Sha256::of(std::as_bytes(std::span(name)));
}

std::string bytes_of_file(const std::string& path) {
  std::ifstream stream(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(stream), {}};
}

bool is_same(const PackedMatrix& a, const PackedMatrix& b) {
  const bool same_order =
      (a.input_order == nullptr) == (b.input_order == nullptr) && (a.input_order == nullptr || *a.input_order == *b.input_order);
  return a.format == b.format && a.rows == b.rows && a.columns == b.columns && a.scale_columns == b.scale_columns && a.table == b.table &&
         a.scale_bytes == b.scale_bytes && a.has_minimums == b.has_minimums && a.panel_bytes == b.panel_bytes && a.storage == b.storage &&
         same_order;
}

std::vector<PackedMatrix> some_matrices() {
  Rng rng(71);
  std::vector<PackedMatrix> matrices;
  for (const auto& kind : weight_cases()) matrices.push_back(random_matrix(rng, kind, 17, 256).packed);
  std::vector<std::uint32_t> order(256);
  for (std::uint32_t i = 0; i < order.size(); ++i) order[i] = (i * 3 + 5) % 256;
  matrices.back().input_order = std::make_shared<const std::vector<std::uint32_t>>(order);
  return matrices;
}

Result<PackedFile> write_file(const std::string& path, const Sha256Digest& key, const std::vector<PackedMatrix>& matrices) {
  auto writer = PackedFileWriter::create(path, key, static_cast<std::uint32_t>(matrices.size()), kNoBound);
  if (!writer) return std::unexpected(writer.error());
  for (std::size_t i = matrices.size(); i-- > 0;)
    if (auto written = (*writer)->write(static_cast<std::uint32_t>(i), matrices[i]); !written) return std::unexpected(written.error());
  return (*writer)->finish();
}

std::size_t files_in(const std::string& folder) {
  std::size_t count = 0;
  for (auto it = std::filesystem::directory_iterator(folder); it != std::filesystem::directory_iterator(); ++it) ++count;
  return count;
}

ino_t inode_of(const std::string& path) {
  struct stat info{};
  EXPECT_EQ(::stat(path.c_str(), &info), 0);
  return info.st_ino;
}

// Limits the size of files, like a full disk.
class FullDisk {
 public:
  explicit FullDisk(std::uint64_t bytes) : handler_(std::signal(SIGXFSZ, SIG_IGN)) {
    ::getrlimit(RLIMIT_FSIZE, &before_);
    const rlimit now{.rlim_cur = bytes, .rlim_max = before_.rlim_max};
    ::setrlimit(RLIMIT_FSIZE, &now);
  }
  ~FullDisk() {
    ::setrlimit(RLIMIT_FSIZE, &before_);
    std::signal(SIGXFSZ, handler_);
  }
  FullDisk(const FullDisk&) = delete;
  FullDisk& operator=(const FullDisk&) = delete;

 private:
  void (*handler_)(int);
  rlimit before_{};
};

class PackedFiles : public testing::Test {
 protected:
  tiny::TempFolder folder_;
  std::string path_ = folder_.file("a.packed");
  Sha256Digest key_ = key_named("a");
};

TEST_F(PackedFiles, ReadsBackMatricesOfEveryFormat) {
  const std::vector<PackedMatrix> matrices = some_matrices();
  ASSERT_TRUE(write_file(path_, key_, matrices).has_value());
  const auto file = PackedFile::open(path_, key_);
  ASSERT_TRUE(file) << file.error().to_string();
  ASSERT_EQ(file->size(), matrices.size());
  for (std::uint32_t i = 0; i < file->size(); ++i) {
    PackedMatrix read;
    ASSERT_TRUE(file->read(i, read));
    EXPECT_TRUE(is_same(read, matrices[i])) << i;
  }
}

TEST_F(PackedFiles, MapsMatricesWithoutCopying) {
  const std::vector<PackedMatrix> matrices = some_matrices();
  std::vector<PackedMatrix> seen(matrices.size());
  {
    auto file = write_file(path_, key_, matrices);
    ASSERT_TRUE(file && file->map());
    for (std::uint32_t i = 0; i < file->size(); ++i) ASSERT_TRUE(file->view(i, seen[i]));
    file->lock();
  }
  std::filesystem::remove(path_);
  for (std::size_t i = 0; i < matrices.size(); ++i) {
    EXPECT_TRUE(seen[i].storage.is_mapped() && is_same(seen[i], matrices[i])) << i;
    EXPECT_EQ(reinterpret_cast<std::uintptr_t>(seen[i].storage.data()) % kCacheLineBytes, 0U);
    // A copy does not need the mapping any more.
    const PackedMatrix copy = seen[i];
    seen[i].storage.own().assign(1, 0);
    EXPECT_TRUE(!seen[i].storage.is_mapped() && is_same(copy, matrices[i]));
  }
}

// Matrices are larger and smaller than a single write, and several threads write.
TEST_F(PackedFiles, ReadsBackMatricesOfAnySize) {
  std::vector<PackedMatrix> matrices;
  for (const std::uint32_t rows : {16U, 1'200U, 500U, 48U, 2'100U, 700U, 16U, 16U}) {
    MatrixPacker packer(WeightFormat::f32, rows, 515);
    std::vector<float> row(515);
    for (std::uint32_t i = 0; i < rows; ++i) {
      for (std::size_t k = 0; k < row.size(); ++k) row[k] = static_cast<float>(rows * 31 + i * 515 + k);
      packer.put_f32(i, row);
    }
    matrices.push_back(packer.finish());
  }
  auto writer = PackedFileWriter::create(path_, key_, static_cast<std::uint32_t>(matrices.size()), kNoBound);
  ASSERT_TRUE(writer);
  ThreadPool pool(3);
  pool.parallel_for(static_cast<std::uint32_t>(matrices.size()), 1, [&](std::uint32_t begin, std::uint32_t end, std::uint32_t) {
    for (std::uint32_t i = begin; i < end; ++i) ASSERT_TRUE((*writer)->write(i, matrices[i]));
  });
  auto file = (*writer)->finish();
  ASSERT_TRUE(file && file->map());
  for (std::uint32_t i = 0; i < file->size(); ++i) {
    PackedMatrix read, seen;
    ASSERT_TRUE(file->read(i, read) && file->view(i, seen)) << i;
    EXPECT_TRUE(is_same(read, matrices[i]) && is_same(seen, matrices[i])) << i;
  }
  // The page size depends on the system.
  static_cast<void>(file->reread());
  for (std::uint32_t i = 0; i < file->size(); ++i) {
    PackedMatrix seen;
    ASSERT_TRUE(file->view(i, seen) && is_same(seen, matrices[i])) << i;
  }
}

TEST_F(PackedFiles, ConcurrentWritersUseTheFirstFinishedFile) {
  const std::vector<PackedMatrix> matrices = some_matrices();
  auto first = PackedFileWriter::create(path_, key_, 1, kNoBound), second = PackedFileWriter::create(path_, key_, 1, kNoBound);
  ASSERT_TRUE(first && second);
  ASSERT_TRUE((*first)->write(0, matrices[0]) && (*second)->write(0, matrices[0]));
  EXPECT_EQ(PackedFile::open(path_, key_).error().code, ErrorCode::not_found) << "an unfinished file is not found";
  ASSERT_TRUE((*second)->finish());
  const ino_t written = inode_of(path_);
  const auto file = (*first)->finish();
  ASSERT_TRUE(file);
  EXPECT_EQ(inode_of(path_), written);
  PackedMatrix read;
  EXPECT_TRUE(file->read(0, read) && is_same(read, matrices[0]));
  first->reset();
  second->reset();
  EXPECT_EQ(files_in(std::filesystem::path(path_).parent_path()), 1U);
}

TEST_F(PackedFiles, ReplacesAnInvalidFile) {
  tiny::write_file(path_, "of another version");
  const auto file = write_file(path_, key_, some_matrices());
  ASSERT_TRUE(file) << file.error().to_string();
  EXPECT_TRUE(PackedFile::open(path_, key_));
}

TEST_F(PackedFiles, BelongToAModel) {
  ASSERT_TRUE(write_file(path_, key_, some_matrices()).has_value());
  EXPECT_EQ(PackedFile::open(path_, key_named("b")).error().code, ErrorCode::corrupt);
  EXPECT_EQ(PackedFile::open(folder_.file("b.packed"), key_).error().code, ErrorCode::not_found);
}

TEST_F(PackedFiles, DetectsEveryFlippedByteAndTruncation) {
  Rng rng(72);
  const std::vector<PackedMatrix> matrices{random_matrix(rng, weight_cases()[0], 16, 32).packed,
                                           random_matrix(rng, weight_cases()[2], 16, 64).packed};
  ASSERT_TRUE(write_file(path_, key_, matrices).has_value());
  const std::string whole = bytes_of_file(path_);
  std::filesystem::permissions(path_, std::filesystem::perms::owner_write, std::filesystem::perm_options::add);
  std::size_t num_found = 0;
  const auto look = [&] {
    auto file = PackedFile::open(path_, key_);
    bool found = !file;
    ASSERT_TRUE(!file || file->map());
    for (std::uint32_t i = 0; file && i < file->size(); ++i) {
      PackedMatrix read, seen;
      const bool sound = file->read(i, read).has_value();
      ASSERT_TRUE(!sound || is_same(read, matrices[i]));
      ASSERT_EQ(file->view(i, seen).has_value(), sound);
      ASSERT_TRUE(!sound || is_same(seen, matrices[i]));
      found = found || !sound;
    }
    num_found += found ? 1 : 0;
  };
  const auto put = [&](std::size_t at, char byte) {
    std::fstream stream(path_, std::ios::binary | std::ios::in | std::ios::out);
    stream.seekp(static_cast<std::streamoff>(at)).put(byte);
  };
  for (std::size_t at = 0; at < whole.size(); at += at < 128 || at >= whole.size() - 256 ? 1 : 7) {
    put(at, static_cast<char>(whole[at] ^ 0x10));
    look();
    put(at, whole[at]);
  }
  EXPECT_GT(num_found, 500U);
  num_found = 0;
  std::size_t num_cuts = 0;
  for (std::size_t size = whole.size() - 1; size > 13; size -= 13, ++num_cuts) {
    std::filesystem::resize_file(path_, size);
    look();
  }
  EXPECT_EQ(num_found, num_cuts) << "each truncation is detected";
}

TEST_F(PackedFiles, AnUnfinishedFileIsRemoved) {
  {
    auto writer = PackedFileWriter::create(path_, key_, 2, kNoBound);
    ASSERT_TRUE(writer);
    ASSERT_TRUE((*writer)->write(0, some_matrices()[0]));
  }
  EXPECT_TRUE(std::filesystem::is_empty(std::filesystem::path(path_).parent_path()));
}

TEST_F(PackedFiles, AFullDiskLeavesNothing) {
  const FullDisk disk(8'000);
  EXPECT_EQ(write_file(path_, key_, some_matrices()).error().code, ErrorCode::io);
  EXPECT_TRUE(std::filesystem::is_empty(std::filesystem::path(path_).parent_path()));
}

class PackedFolders : public PackedFiles {
 protected:
  WeightsOptions options_{.cache_folder = folder_.file("weights"), .cache_bytes = 100'000};

  void keep(const std::string& name, std::uint64_t estimate) {
    Rng rng(73);
    auto writer = begin_packed(options_, key_named(name), 1, estimate);
    ASSERT_TRUE(writer) << writer.error().to_string();
    ASSERT_TRUE((*writer)->write(0, random_matrix(rng, weight_cases()[0], 16, 512).packed));  // 32 KiB
    ASSERT_TRUE((*writer)->finish());
  }
  bool has(const std::string& name) { return find_packed(options_, key_named(name)).has_value(); }
  std::uint64_t bytes() {
    std::uint64_t sum = 0;
    for (const auto& file : std::filesystem::directory_iterator(options_.cache_folder)) sum += file.file_size();
    return sum;
  }
};

TEST_F(PackedFolders, EvictTheLeastRecentlyUsedFiles) {
  keep("a", 33'000);
  keep("b", 33'000);
  EXPECT_TRUE(has("a"));
  // One file was last used an hour ago, the other now.
  const auto now = std::filesystem::file_time_type::clock::now();
  for (const auto& file : std::filesystem::directory_iterator(options_.cache_folder))
    std::filesystem::last_write_time(file, now - std::chrono::hours(1));
  EXPECT_TRUE(has("a"));
  keep("c", 33'000);
  EXPECT_TRUE(has("a") && has("c") && !has("b"));
  EXPECT_LE(bytes(), options_.cache_bytes);
}

TEST_F(PackedFolders, NeverGrowBeyondTheirBudget) {
  EXPECT_EQ(begin_packed(options_, key_, 1, 100'001).error().field, "weights_cache_budget");
  // The estimate is too low.
  options_.cache_bytes = 30'000;
  Rng rng(74);
  auto writer = begin_packed(options_, key_, 1, 1'000);
  ASSERT_TRUE(writer);
  EXPECT_EQ((*writer)->write(0, random_matrix(rng, weight_cases()[0], 16, 512).packed).error().code, ErrorCode::too_large);
  writer->reset();
  EXPECT_EQ(bytes(), 0U);
}

// An unlinked file in use would need as much space.
TEST_F(PackedFolders, KeepFilesInUse) {
  options_.cache_bytes = 130'000;
  keep("a", 33'000);
  keep("b", 33'000);
  keep("c", 33'000);
  EXPECT_TRUE(has("a") && has("b") && has("c"));
  {
    // A matrix that is mapped from the file keeps it in use.
    PackedMatrix matrix;
    {
      auto a = find_packed(options_, key_named("a"));
      ASSERT_TRUE(a && a->map() && a->view(0, matrix));
    }
    const auto c = find_packed(options_, key_named("c"));
    keep("d", 33'000);
    EXPECT_TRUE(has("a") && !has("b") && has("c") && has("d"));
    const auto d = find_packed(options_, key_named("d"));
    EXPECT_EQ(begin_packed(options_, key_named("e"), 1, 33'000).error().field, "weights_cache_budget");
    EXPECT_TRUE(has("a") && has("c") && has("d"));
  }
  keep("e", 33'000);
  EXPECT_TRUE(has("e"));
  EXPECT_LE(bytes(), options_.cache_bytes);
}

TEST_F(PackedFolders, RemoveFilesOfKilledProcessesAndKeepFilesInProgress) {
  std::filesystem::create_directories(options_.cache_folder);
  tiny::write_file(options_.cache_folder + "/x.packed.1.tmp", "left");
  tiny::write_file(options_.cache_folder + "/y.packed.2.tmp", "written");
  const int other = ::open((options_.cache_folder + "/y.packed.2.tmp").c_str(), O_RDONLY | O_CLOEXEC);
  ASSERT_EQ(::flock(other, LOCK_EX), 0);
  keep("a", 33'000);
  ::close(other);
  EXPECT_FALSE(std::filesystem::exists(options_.cache_folder + "/x.packed.1.tmp"));
  EXPECT_TRUE(std::filesystem::exists(options_.cache_folder + "/y.packed.2.tmp"));
}

TEST_F(PackedFolders, DamagedFilesAreRemoved) {
  keep("a", 33'000);
  for (const auto& file : std::filesystem::directory_iterator(options_.cache_folder)) {
    std::filesystem::permissions(file, std::filesystem::perms::owner_write, std::filesystem::perm_options::add);
    std::filesystem::resize_file(file, 5'000);
  }
  EXPECT_EQ(find_packed(options_, key_named("a")).error().code, ErrorCode::corrupt);
  EXPECT_EQ(bytes(), 0U);
}

TEST_F(PackedFolders, ReportTheOptionOfAnInvalidFolder) {
  tiny::write_file(options_.cache_folder, "a file");
  EXPECT_EQ(begin_packed(options_, key_, 1, 1'000).error().field, "weights_cache");
  options_.cache_folder = "/proc/self/weights";  // no process can create a folder here
  EXPECT_EQ(begin_packed(options_, key_, 1, 1'000).error().field, "weights_cache");
}

}  // namespace
}  // namespace quire
