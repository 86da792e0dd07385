#pragma once
// Asks the hub about a repository.
#include <string>
#include <vector>

#include "hub/choose_files.h"
#include "hub/http_client.h"
#include "hub/hub_options.h"

namespace quire {

// Borrows its arguments. Blocks. Errors have the field MODEL: `not_found` (no such repository, or private), `unsupported` (access must be
// granted first), `overloaded`, `unavailable`, `corrupt` (an answer that is not in the form of the hub).
class HubApi {
 public:
  HubApi(const HubOptions& options, HttpClient& client, const HubHooks& hooks) : options_(options), client_(client), hooks_(hooks) {}

  // Returns the newest commit of the main branch.
  Result<std::string> main_commit(const std::string& repo);
  // Returns all files of the commit.
  Result<std::vector<HubFile>> list(const std::string& repo, const std::string& commit);
  // Returns names that the hub finds for the name without its owner. Empty after any error.
  std::vector<std::string> similar_names(const std::string& repo);
  // Returns the request for the bytes of a file.
  [[nodiscard]] HttpGet file_request(const std::string& repo, const std::string& commit, const std::string& path) const;
  // Returns the error for an answer with another status than 200 and 206.
  [[nodiscard]] Error refusal(const HttpHead& head, const std::string& repo) const;

 private:
  struct Page {
    HttpHead head;
    std::string body;
  };
  Result<Page> get(const std::string& url, const std::string& repo);

  const HubOptions& options_;
  HttpClient& client_;
  const HubHooks& hooks_;
};

}  // namespace quire
