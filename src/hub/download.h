#pragma once
// Downloads one file to a path, continuing an earlier download.
#include <cstdint>
#include <filesystem>
#include <functional>
#include <string>

#include "hub/http_client.h"
#include "hub/hub_options.h"
#include "hub/partial_file.h"

namespace quire {

struct Download {
  std::string name;              // in messages
  HttpGet request;               // first_byte and if_range are set by download()
  std::filesystem::path path{};  // of the complete file
  std::filesystem::path partial{}, lock{};
  std::optional<std::uint64_t> size{};  // if it is known before
  std::string digest{};                 // in hexadecimal; empty: not known
  FileDigest::Kind digest_kind = FileDigest::Kind::sha256;
  // Stores the ETag of a partial file whose content may change at its URL; empty: the content of the URL never changes.
  std::filesystem::path etag_file{};
  std::function<Error(const HttpHead&)> refusal;  // returns the error for an answer with another status than 200 and 206
  // Called with the number of bytes that are there, and the size of the file (0: not known).
  std::function<void(std::uint64_t, std::uint64_t)> progress;
};

// Returns an error if the disk of the folder, which may not exist yet, has less than `num_bytes` free. Error: `io`.
Result<void> check_disk_space(const std::filesystem::path& folder, std::uint64_t num_bytes);

// Returns after the file is at `path`. If another process downloads the same file, waits for it. A file that does not match its digest is
// removed; if an earlier download had begun it, it is downloaded once more. Errors: `corrupt`, `io`, errors of HttpClient and of `refusal`.
Result<void> download(HttpClient& client, const Download& file, const HubHooks& hooks);

}  // namespace quire
