#pragma once
// The folder of downloaded models, in the layout of huggingface_hub, so that programs share downloads:
//
//   models--ORG--REPO/blobs/DIGEST                 the bytes of a file; DIGEST.incomplete while they are downloaded
//   models--ORG--REPO/snapshots/COMMIT/PATH        symbolic link to a blob
//   models--ORG--REPO/refs/main                    the newest commit that was downloaded completely
//   .locks/models--ORG--REPO/DIGEST.lock           locked by the process that downloads the blob
#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "hub/choose_files.h"
#include "hub/model_name.h"

namespace quire {

// A model in the cache that quire can open.
struct CachedModel {
  std::string name;            // as the user writes it: ORG/REPO:QUANT, ORG/REPO, or a URL
  std::filesystem::path path;  // the GGUF file or the folder
  std::uint64_t num_bytes = 0;
  std::size_t num_files = 0;
  bool is_complete = true;  // false: a download that has not ended, or a repository without a model for quire
  bool has_tokenizer = true;
};

// Borrows nothing. Reads the folders on each call. A folder that cannot be read counts as empty.
class HubCache {
 public:
  HubCache(std::filesystem::path root, std::filesystem::path url_root) : root_(std::move(root)), url_root_(std::move(url_root)) {}

  [[nodiscard]] const std::filesystem::path& root() const { return root_; }
  [[nodiscard]] std::filesystem::path repo_folder(const std::string& repo) const;
  [[nodiscard]] std::filesystem::path blob_path(const std::string& repo, const std::string& digest) const;
  [[nodiscard]] std::filesystem::path lock_path(const std::string& repo, const std::string& digest) const;
  [[nodiscard]] std::filesystem::path snapshot_folder(const std::string& repo, const std::string& commit) const;
  // Returns the path that a file of another host has in the cache.
  [[nodiscard]] std::filesystem::path url_path(const std::string& url) const;

  // Makes the link of a snapshot to a blob. Replaces a link to another blob. Error: `io`.
  Result<void> link(const std::string& repo, const std::string& commit, const HubFile& file) const;
  // Records the commit as the newest one. Error: `io`.
  Result<void> set_main(const std::string& repo, const std::string& commit) const;

  // Returns the model if all its files are in one snapshot. Prefers the snapshot of refs/main, then the newest one.
  [[nodiscard]] std::optional<CachedModel> find(const HubName& name) const;
  [[nodiscard]] std::optional<CachedModel> find_url(const std::string& url) const;
  // Returns all models, by name. Downloads that have not ended are included.
  [[nodiscard]] std::vector<CachedModel> list() const;

  // Removes a model: all of a repository, or one quantization of it with the blobs that no other file of the repository uses. Returns the
  // number of bytes that were freed. Errors: `not_found` with the field MODEL; `io`.
  Result<std::uint64_t> remove(const HubName& name) const;
  Result<std::uint64_t> remove_url(const std::string& url) const;

 private:
  // Returns the snapshot folders of a repository, the preferred one first.
  [[nodiscard]] std::vector<std::filesystem::path> snapshots(const std::string& repo) const;
  void list_repo(const std::string& repo, std::vector<CachedModel>& models) const;
  Result<std::uint64_t> remove_variant(const HubName& name) const;

  std::filesystem::path root_, url_root_;
};

// Returns the folder's name for a repository: models--ORG--REPO.
[[nodiscard]] std::string cache_folder_name(const std::string& repo);

}  // namespace quire
