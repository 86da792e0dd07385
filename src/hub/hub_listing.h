#pragma once
// Reads the hub's answers about a repository. The answers are not trusted: names of files become paths on this machine, and digests become
// names of files.
#include <string>
#include <string_view>
#include <vector>

#include "hub/choose_files.h"
#include "quire/base/error.h"

namespace quire {

inline constexpr std::uint64_t kMaxListingBytes = std::uint64_t{32} << 20;  // of one page

// Returns the commit of /api/models/ORG/REPO/revision/main: 40 hexadecimal digits. Error: `corrupt`.
Result<std::string> parse_commit(std::string_view json);

// Returns the files of one page of /api/models/ORG/REPO/tree/COMMIT, without folders. Errors: `corrupt`: not the form of the hub; a path
// that is absolute, leaves the repository or contains control characters; a digest that is not hexadecimal; a size above 16 TiB.
Result<std::vector<HubFile>> parse_listing(std::string_view json);

// Returns the valid names of repositories in an answer of /api/models?search=.... Error: `corrupt`.
Result<std::vector<std::string>> parse_names(std::string_view json);

// Returns the URL of the next page from a Link header, as the header has it; empty on the last page.
[[nodiscard]] std::string next_page(std::string_view link_header);

// Returns whether the text consists of `num_digits` lower-case hexadecimal digits.
[[nodiscard]] bool is_hex(std::string_view text, std::size_t num_digits);

// Returns whether the path is relative, stays in its folder, and has only plain names.
[[nodiscard]] bool is_safe_path(std::string_view path);

}  // namespace quire
