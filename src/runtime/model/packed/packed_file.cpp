// Writes and reads a file of packed weights. Called while a model is loaded, by several threads at a time, and later by passes that need
// experts (expert_store.h).
#include "runtime/model/packed/packed_file.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <system_error>
#include <type_traits>
#include <utility>

#include "base/check.h"
#include "runtime/model/packed/chunk_writer.h"
#include "runtime/model/packed/packed_map.h"
#include "runtime/model/packed/packed_table.h"

namespace quire {
namespace {

constexpr std::array<char, 8> kMagic{'q', 'u', 'i', 'r', 'e', 'p', 'w', '\n'};
constexpr std::uint32_t kVersion = 1;
constexpr std::uint64_t kMostTableBytes = std::uint64_t{1} << 30U;

struct Header {
  std::array<char, 8> magic = kMagic;
  std::uint32_t version = kVersion;
  std::uint32_t uses_xxh3 = 0;
  Sha256Digest key{};
  std::uint64_t num_matrices = 0;
  std::uint64_t table_offset = 0;
  std::uint64_t table_bytes = 0;
  WeightDigest table_digest{};
  WeightDigest digest{};  // digest of all other members
};
static_assert(std::is_trivially_copyable_v<Header> && offsetof(Header, digest) == 88 && sizeof(Header) == 104);

WeightDigest digest_of(std::span<const std::byte> bytes) {
  if (xxhash_available()) return xxh3_128(bytes);
  WeightDigest half{};
  std::ranges::copy_n(Sha256::of(bytes).begin(), half.size(), half.begin());
  return half;
}

WeightDigest digest_of(const Header& header) {
  return digest_of(std::as_bytes(std::span(&header, 1)).first(offsetof(Header, digest)));
}

constexpr const char* kPackedAgain = "the weights are packed again";

std::string reason() {
  return std::generic_category().message(errno);
}

// The error of a file that is being written.
std::unexpected<Error> io_error(const std::string& path, const char* problem) {
  return fail(ErrorCode::io, path, problem + reason(), "use a writable folder for --weights-cache, on a disk with free space");
}

std::unexpected<Error> damaged(const std::string& path, const std::string& what) {
  return fail(ErrorCode::corrupt, path, what, kPackedAgain);
}

std::unexpected<Error> damaged_matrix(const std::string& path, std::uint32_t number) {
  return damaged(path, fmt::format("matrix {} is corrupted", number));
}

}  // namespace

OwnedFile::~OwnedFile() {
  ::close(descriptor_);
}

Result<void> OwnedFile::read(std::span<std::byte> out, std::uint64_t offset) const {
  for (std::size_t done = 0; done < out.size();) {
    const ssize_t got = ::pread(descriptor_, out.data() + done, out.size() - done, static_cast<off_t>(offset + done));
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) return fail(ErrorCode::io, path_, "cannot be read: " + reason(), kPackedAgain);
    if (got == 0) return damaged(path_, "is truncated");
    done += static_cast<std::size_t>(got);
  }
  return {};
}

Result<void> OwnedFile::write(std::span<const std::byte> bytes, std::uint64_t offset) const {
  for (std::size_t done = 0; done < bytes.size();) {
    const ssize_t put = ::pwrite(descriptor_, bytes.data() + done, bytes.size() - done, static_cast<off_t>(offset + done));
    if (put < 0 && errno == EINTR) continue;
    if (put < 0) return io_error(path_, "cannot be written: ");
    done += static_cast<std::size_t>(put);
  }
  return {};
}

Result<PackedFile> PackedFile::open(const std::string& path, const Sha256Digest& key) {
  const int descriptor = ::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK);
  if (descriptor < 0)
    return fail(errno == ENOENT ? ErrorCode::not_found : ErrorCode::io, path, "cannot be opened: " + reason(), kPackedAgain);
  const auto file = std::make_shared<const OwnedFile>(descriptor, path);
  struct stat info{};
  if (::fstat(descriptor, &info) != 0) return fail(ErrorCode::io, path, "cannot be examined: " + reason(), kPackedAgain);
  if (!S_ISREG(info.st_mode) || info.st_uid != ::geteuid()) return damaged(path, "is not a regular file owned by this user");
  // The lock marks the file as in use (packed_folder.cpp).
  ::flock(descriptor, LOCK_SH | LOCK_NB);
  Header header;
  if (auto read = file->read(std::as_writable_bytes(std::span(&header, 1)), 0); !read) return std::unexpected(std::move(read.error()));
  if (header.magic != kMagic || header.version != kVersion || header.digest != digest_of(header))
    return damaged(path, "has a corrupted header");
  if (header.uses_xxh3 != (xxhash_available() ? 1U : 0U) || header.key != key)
    return damaged(path, "belongs to another model or another build of quire");
  const auto size = static_cast<std::uint64_t>(info.st_size);
  if (header.table_bytes > kMostTableBytes || header.table_offset > size || header.table_bytes > size - header.table_offset)
    return damaged(path, "has a table that is outside the file");
  std::vector<std::byte> table(header.table_bytes);
  if (auto read = file->read(table, header.table_offset); !read) return std::unexpected(std::move(read.error()));
  if (digest_of(table) != header.table_digest) return damaged(path, "has a corrupted table");
  auto entries = decode_table(table, header.num_matrices, header.table_offset);
  if (!entries) return damaged(path, "has an invalid table");
  return PackedFile(file, std::make_shared<const std::vector<PackedEntry>>(*std::move(entries)));
}

Result<void> PackedFile::read(std::uint32_t number, PackedMatrix& matrix) const {
  const PackedEntry& entry = (*entries_)[number];
  AlignedVector<std::uint8_t> storage = std::move(matrix.storage.own());
  matrix = entry.shape;
  storage.resize(entry.bytes);
  matrix.storage.own() = std::move(storage);
  const std::span<std::byte> bytes = std::as_writable_bytes(std::span(matrix.storage.own()));
  if (auto read = file_->read(bytes, entry.offset); !read) return read;
  if (digest_of(bytes) != entry.digest) return damaged_matrix(file_->path(), number);
  return {};
}

Result<void> PackedFile::map() {
  std::uint64_t end = kPackedAlignment;
  for (const PackedEntry& entry : *entries_) end = std::max(end, entry.offset + entry.bytes);
  auto map = PackedMap::make(file_, end);
  if (!map) return std::unexpected(std::move(map.error()));
  map_ = *std::move(map);
  return {};
}

Result<void> PackedFile::view(std::uint32_t number, PackedMatrix& matrix) const {
  const PackedEntry& entry = (*entries_)[number];
  const std::span<const std::uint8_t> bytes = map_->bytes().subspan(entry.offset, entry.bytes);
  if (digest_of(std::as_bytes(bytes)) != entry.digest) return damaged_matrix(file_->path(), number);
  matrix = entry.shape;
  matrix.storage = PackedStorage(map_, bytes);
  return {};
}

bool PackedFile::is_in_huge_pages() const {
  return map_->is_in_huge_pages();
}

bool PackedFile::reread() const {
  return map_->reread();
}

void PackedFile::lock() const {
  map_->lock();
}

void PackedFile::fetch_ahead(std::uint32_t number) const {
  const PackedEntry& entry = (*entries_)[number];
  ::posix_fadvise(file_->descriptor(), static_cast<off_t>(entry.offset), static_cast<off_t>(entry.bytes), POSIX_FADV_WILLNEED);
}

PackedFileWriter::PackedFileWriter(std::shared_ptr<const OwnedFile> file, std::string path, const Sha256Digest& key,
                                   std::uint32_t num_matrices, std::uint64_t max_bytes)
    : file_(std::move(file)),
      path_(std::move(path)),
      key_(key),
      entries_(num_matrices),
      max_bytes_(max_bytes),
      end_(kPackedAlignment),
      chunks_(std::make_unique<ChunkWriter>(*file_, kPackedAlignment, kPackedAlignment)) {}

Result<std::unique_ptr<PackedFileWriter>> PackedFileWriter::create(const std::string& path, const Sha256Digest& key,
                                                                   std::uint32_t num_matrices, std::uint64_t max_bytes) {
  // The name is unique among all processes, including those in other containers.
  std::string beside = path + ".XXXXXX.tmp";
  const int descriptor = ::mkostemps(beside.data(), 4, O_CLOEXEC);
  if (descriptor < 0) return io_error(beside, "cannot be created: ");
  const auto file = std::make_shared<const OwnedFile>(descriptor, beside);
  // The lock marks the file as being written (packed_folder.cpp).
  if (::flock(descriptor, LOCK_EX | LOCK_NB) != 0) return io_error(beside, "cannot be locked: ");
  return std::unique_ptr<PackedFileWriter>(new PackedFileWriter(file, path, key, num_matrices, max_bytes));
}

PackedFileWriter::~PackedFileWriter() {
  if (!is_finished_) ::unlink(file_->path().c_str());
}

Result<std::uint64_t> PackedFileWriter::take(std::uint64_t bytes) {
  const std::uint64_t offset = end_.fetch_add((bytes + kPackedAlignment - 1) / kPackedAlignment * kPackedAlignment);
  if (bytes <= max_bytes_ && offset <= max_bytes_ - bytes) return offset;
  return fail(ErrorCode::too_large, path_, fmt::format("would be larger than {} bytes", max_bytes_), "raise --weights-cache-budget");
}

Result<void> PackedFileWriter::write(std::uint32_t number, const PackedMatrix& matrix) {
  PackedEntry& entry = entries_[number];
  const auto bytes = std::as_bytes(std::span(matrix.storage.data(), matrix.storage.size()));
  entry.shape = {.format = matrix.format,
                 .rows = matrix.rows,
                 .columns = matrix.columns,
                 .scale_columns = matrix.scale_columns,
                 .scale_bytes = matrix.scale_bytes,
                 .has_minimums = matrix.has_minimums,
                 .table = matrix.table,
                 .panel_bytes = matrix.panel_bytes,
                 .input_order = matrix.input_order};
  entry.bytes = bytes.size();
  entry.digest = digest_of(bytes);
  const auto offset = take(bytes.size());
  if (!offset) return std::unexpected(offset.error());
  entry.offset = *offset;
  return chunks_->write(bytes, entry.offset);
}

Result<PackedFile> PackedFileWriter::finish() {
  for (const PackedEntry& entry : entries_) QUIRE_CHECK(entry.offset != 0, "all matrices are written");
  const std::vector<std::byte> table = encode_table(entries_);
  const auto offset = take(table.size());
  if (!offset) return std::unexpected(offset.error());
  Header header{.uses_xxh3 = xxhash_available() ? 1U : 0U,
                .key = key_,
                .num_matrices = entries_.size(),
                .table_offset = *offset,
                .table_bytes = table.size(),
                .table_digest = digest_of(table)};
  header.digest = digest_of(header);
  if (auto written = chunks_->write(table, *offset); !written) return std::unexpected(std::move(written.error()));
  if (auto written = chunks_->finish(); !written) return std::unexpected(std::move(written.error()));
  // The header is written after this sync, so a file with a header is complete.
  if (::fdatasync(file_->descriptor()) != 0) return io_error(file_->path(), "cannot be written: ");
  if (auto written = file_->write(std::as_bytes(std::span(&header, 1)), 0); !written) return std::unexpected(std::move(written.error()));
  // The file becomes read-only, because a process that maps it would serve changed bytes.
  if (::fchmod(file_->descriptor(), 0400) != 0) return io_error(file_->path(), "cannot be protected: ");
  return publish();
}

Result<PackedFile> PackedFileWriter::publish() {
  const char* const from = file_->path().c_str();
  if (::renameat2(AT_FDCWD, from, AT_FDCWD, path_.c_str(), RENAME_NOREPLACE) != 0) {
    // If two processes write the same file, both use the file that is finished first.
    if (errno == EEXIST)
      if (auto others = PackedFile::open(path_, key_)) return others;
    if (::rename(from, path_.c_str()) != 0) return io_error(path_, "cannot be created: ");
  }
  is_finished_ = true;
  ::flock(file_->descriptor(), LOCK_UN);
  return PackedFile::open(path_, key_);
}

}  // namespace quire
