#pragma once
// The journals of a folder: one that is being written, and those before it, of this start and of earlier ones, which go when the budget
// needs their room.
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "quire/base/error.h"
#include "quire/journal.h"

namespace quire {

// Belongs to one thread at a time. A file is locked while it is written, so that no other process takes it for an old one.
class JournalFile {
 public:
  // DIR/quire-TIME-PID.qj, so that names are in the order of time; for its owner alone, since it holds tokens of prompts. The folder is
  // made where it is missing. Errors: `journal`.
  static Result<JournalFile> create(const std::string& folder, std::uint64_t max_bytes);
  // DIR/saved-TIME-PID.qj, which no budget counts and nobody deletes.
  static Result<JournalFile> create_saved(const std::string& folder);
  JournalFile(JournalFile&& other) noexcept;
  JournalFile& operator=(JournalFile&&) = delete;
  ~JournalFile();

  [[nodiscard]] const std::string& path() const { return path_; }
  [[nodiscard]] std::uint64_t size() const { return size_; }
  // Of this one and of those that it went on from.
  [[nodiscard]] std::uint64_t total_size() const { return earlier_size_ + size_; }
  // All of the bytes or nothing: null, or why not. Deletes older journals where they are in the way.
  [[nodiscard]] std::optional<JournalEnd> append(std::span<const std::uint8_t> bytes);
  // Ends this file and goes on in another one that begins with these bytes. False: the budget or the disk has no room for both, and nothing
  // has changed. A file is there under its name when its beginning is.
  [[nodiscard]] bool begin_next(std::span<const std::uint8_t> beginning);
  // The last frame; nothing is appended thereafter. Where the disk is full there is room for it still, as far as the file system lets one
  // reserve any.
  void finish(JournalEnd end);

 private:
  JournalFile() = default;
  // A new file, locked; false: errno says why not.
  [[nodiscard]] bool open(std::string_view prefix, std::string_view suffix = {});
  // Gives back what was reserved.
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
  std::vector<Older> older_;  // that may be deleted, the oldest last
  std::uint64_t older_bytes_ = 0;
  int descriptor_ = -1;
  std::uint64_t size_ = 0, reserved_ = 0;
  bool can_reserve_ = true;
};

}  // namespace quire
