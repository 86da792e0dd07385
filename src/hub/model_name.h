#pragma once
// Parses the MODEL argument of a command: a local path, the name of a repository of the hub, or the URL of a file.
#include <string>
#include <string_view>
#include <variant>

#include "quire/base/error.h"

namespace quire {

// A repository of the hub, as "org/repo" or "org/repo:Q4_K_M".
struct HubName {
  std::string repo;
  std::string variant{};  // a quantization, or the path of a GGUF file in the repository; empty: not given

  [[nodiscard]] std::string text() const { return variant.empty() ? repo : repo + ":" + variant; }
};

struct FileUrl {
  std::string url;
};

struct LocalPath {
  std::string path;
};

using ModelName = std::variant<LocalPath, HubName, FileUrl>;

// Does not look at the file system: the caller first checks whether the text is an existing path. `endpoint` is the URL of the hub; URLs of
// its repositories and of their GGUF files become a HubName. hf://, hf.co/ and huggingface.co/ may come before a name. Errors:
// `invalid_argument` with the field MODEL if one of these prefixes is not followed by a valid name.
Result<ModelName> parse_model_name(std::string_view text, std::string_view endpoint);

// Returns whether the text is "org/repo", or "repo" if `may_have_no_owner`, in the characters that the hub allows. Such a text is a safe
// name of a folder after each '/' is replaced.
[[nodiscard]] bool is_repo_name(std::string_view text, bool may_have_no_owner);

}  // namespace quire
