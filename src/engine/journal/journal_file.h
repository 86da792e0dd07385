#pragma once
// The journal files of a folder: the file that is being written, and older files of this run and of earlier runs. Older files are deleted
// when the budget needs their space.
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "quire/base/error.h"
#include "quire/journal.h"

namespace quire {

// Belongs to one thread at a time. A file is locked while it is written, so that other processes do not delete it as an old file.
class JournalFile {
 public:
  // Creates DIR/quire-TIME-PID.qj, whose name sorts by time. Creates the folder if it is missing. Only the owner can read the file, because
  // it contains tokens of prompts. Errors name `journal`.
  static Result<JournalFile> create(const std::string& folder, std::uint64_t max_bytes);
  // Creates DIR/saved-TIME-PID.qj, which counts towards no budget and is never deleted by quire.
  static Result<JournalFile> create_saved(const std::string& folder);
  JournalFile(JournalFile&& other) noexcept;
  JournalFile& operator=(JournalFile&&) = delete;
  ~JournalFile();

  [[nodiscard]] const std::string& path() const { return path_; }
  [[nodiscard]] std::uint64_t size() const { return size_; }
  // Returns the size of this file together with all files that it continues.
  [[nodiscard]] std::uint64_t total_size() const { return earlier_size_ + size_; }
  // Appends either all bytes or none. Returns nullopt, or the reason why nothing was appended. Deletes older journals if the budget needs
  // their space.
  [[nodiscard]] std::optional<JournalEnd> append(std::span<const std::uint8_t> bytes);
  // Ends this file and continues in a new file that begins with these bytes. Returns false and keeps this file if the budget or the disk
  // has no room for both files; older journals may have been deleted by then. The new file gets its final name after its beginning is
  // written.
  [[nodiscard]] bool begin_next(std::span<const std::uint8_t> beginning);
  // Writes the last frame; nothing may be appended afterwards. The frame fits even on a full disk, if the file system supports reserving
  // space.
  void finish(JournalEnd end);

 private:
  JournalFile() = default;
  // Creates and locks a new file. On an error returns false, with the reason in errno.
  [[nodiscard]] bool open(std::string_view prefix, std::string_view suffix = {});
  // Closes the file and frees its reserved space.
  void close();
  [[nodiscard]] bool make_room(std::uint64_t num_bytes);
  [[nodiscard]] bool reserve(std::uint64_t num_bytes);
  [[nodiscard]] bool write(std::span<const std::uint8_t> bytes);

  struct Older {
    std::string path;
    std::uint64_t size = 0;
  };
  std::string folder_, path_;
  std::uint64_t max_bytes_ = 0, earlier_size_ = 0;
  std::vector<Older> older_;  // files that may be deleted; the oldest is last
  std::uint64_t older_bytes_ = 0;
  int descriptor_ = -1;
  std::uint64_t size_ = 0, reserved_ = 0;
  bool can_reserve_ = true;
};

}  // namespace quire
