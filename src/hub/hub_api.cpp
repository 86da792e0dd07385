#include "hub/hub_api.h"

#include <fmt/format.h>

#include <iterator>

#include "hub/hub_listing.h"
#include "hub/patient_get.h"

namespace quire {
namespace {

constexpr unsigned kOk = 200, kUnauthorized = 401, kForbidden = 403, kNotFound = 404, kTooManyRequests = 429;
constexpr unsigned kMaxPages = 200;
constexpr std::size_t kMaxFiles = 200'000;

}  // namespace

HttpGet HubApi::file_request(const std::string& repo, const std::string& commit, const std::string& path) const {
  return {.url = fmt::format("{}/{}/resolve/{}/{}", options_.endpoint, repo, commit, escape_path(path)),
          .token = options_.token,
          .token_url = options_.endpoint};
}

Error HubApi::refusal(const HttpHead& head, const std::string& repo) const {
  const std::string page = fmt::format("{}/{}", options_.endpoint, repo);
  // Another host, to which the hub redirects, does not decide about access.
  const bool is_of_hub = head.url.starts_with(options_.endpoint + "/");
  const bool is_repo_missing = head.error_code == "RepoNotFound" || head.error_code.empty();
  if (is_of_hub && (head.error_code == "GatedRepo" || head.status == kForbidden))
    return {ErrorCode::unsupported, "MODEL", fmt::format("the owner of {} must grant access to it", page),
            options_.token.empty() ? "accept the terms on that page, and set HF_TOKEN to a token of your account"
                                   : "accept the terms on that page with the account of HF_TOKEN"};
  if (is_of_hub && is_repo_missing && (head.status == kNotFound || head.status == kUnauthorized))
    return {ErrorCode::not_found, "MODEL", fmt::format("there is no public repository {}", page),
            options_.token.empty() ? "check the name; for a private repository set HF_TOKEN"
                                   : "check the name, and that the token of HF_TOKEN is valid for this repository"};
  if (head.status == kTooManyRequests)
    return {ErrorCode::overloaded, "MODEL", fmt::format("{} refuses more requests (status 429)", host_in(head.url)),
            "run the command again later; with HF_TOKEN the hub allows more requests"};
  return {ErrorCode::unavailable, "MODEL",
          fmt::format("{} answers with status {}{}{}", host_in(head.url), head.status, head.error_message.empty() ? "" : ": ",
                      head.error_message.substr(0, 200)),
          "run the command again later"};
}

Result<HubApi::Page> HubApi::get(const std::string& url, const std::string& repo) {
  Page page;
  const HttpSink sink{.begin = [&](const HttpHead&) -> Result<void> {
                        page.body.clear();
                        return {};
                      },
                      .take = [&](std::span<const std::byte> bytes) -> Result<void> {
                        if (page.body.size() + bytes.size() > kMaxListingBytes)
                          return fail(ErrorCode::corrupt, "MODEL",
                                      fmt::format("{} sends a list of more than {} bytes", host_in(url), kMaxListingBytes),
                                      "check HF_ENDPOINT, or use a model with fewer files");
                        page.body.append(reinterpret_cast<const char*>(bytes.data()), bytes.size());
                        return {};
                      }};
  auto head =
      get_patiently(client_, [&] { return HttpGet{.url = url, .token = options_.token, .token_url = options_.endpoint}; }, sink, hooks_);
  if (!head) return std::unexpected(std::move(head.error()));
  if (head->status != kOk) return std::unexpected(refusal(*head, repo));
  page.head = *std::move(head);
  return page;
}

Result<std::string> HubApi::main_commit(const std::string& repo) {
  const auto page = get(fmt::format("{}/api/models/{}/revision/main", options_.endpoint, repo), repo);
  return page ? parse_commit(page->body) : std::unexpected(page.error());
}

Result<std::vector<HubFile>> HubApi::list(const std::string& repo, const std::string& commit) {
  std::vector<HubFile> files;
  std::string url = fmt::format("{}/api/models/{}/tree/{}?recursive=true", options_.endpoint, repo, commit);
  for (unsigned i = 0; i < kMaxPages && files.size() < kMaxFiles; ++i) {
    const auto page = get(url, repo);
    if (!page) return std::unexpected(page.error());
    auto part = parse_listing(page->body);
    if (!part) return std::unexpected(std::move(part.error()));
    files.insert(files.end(), std::make_move_iterator(part->begin()), std::make_move_iterator(part->end()));
    const std::string next = next_page(page->head.link);
    if (next.empty()) return files;
    auto resolved = resolve_url(page->head.url, next);
    if (!resolved) return std::unexpected(std::move(resolved.error()));
    url = *std::move(resolved);
  }
  return fail(ErrorCode::corrupt, "MODEL", fmt::format("{} lists more than {} files or {} pages", repo, kMaxFiles, kMaxPages),
              "use another repository");
}

std::vector<std::string> HubApi::similar_names(const std::string& repo) {
  constexpr unsigned kMaxNames = 5;
  const std::string name = repo.substr(repo.find('/') + 1);
  const auto page = get(fmt::format("{}/api/models?search={}&limit={}", options_.endpoint, escape_path(name), kMaxNames), repo);
  auto names = page ? parse_names(page->body) : std::unexpected(page.error());
  if (!names) return {};
  if (names->size() > kMaxNames) names->resize(kMaxNames);
  return *std::move(names);
}

}  // namespace quire
