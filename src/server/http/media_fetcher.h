#pragma once
// Fetches images by the URLs in requests. Connects only to hosts that the operator has allowed.
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "quire/base/error.h"
#include "server/http/host_name.h"

namespace quire {

// Returns true for http://... and https://...
[[nodiscard]] bool is_web_address(std::string_view url);

// Parses host names and addresses, without ports. Errors name the field "allowed_media_domains".
[[nodiscard]] Result<std::vector<HostName>> parse_media_domains(const std::vector<std::string>& domains);

struct MediaUrl;
struct MediaExchange;
class NetTls;

class MediaFetcher {
 public:
  struct Options {
    std::vector<HostName> domains;
    std::uint64_t max_bytes = 0;  // for all URLs of a request
    std::chrono::milliseconds timeout{};
  };

  // The time and bytes that a request may still use. All fetches of the request share one budget.
  struct Budget {
    std::optional<std::chrono::steady_clock::time_point> deadline{};  // set by the first fetch
    std::uint64_t num_bytes = 0;
  };

  explicit MediaFetcher(Options options);

  // Returns the bytes at the URL, of any media type. Blocks; may be called on any thread. Errors, without a field: `invalid_argument`,
  // `unsupported` (the host is not allowed), `too_large`.
  Result<std::vector<std::byte>> fetch(std::string_view url, Budget& budget) const;

 private:
  // Resolves the URL in a request or, with `from`, the target of a redirect.
  [[nodiscard]] Result<MediaUrl> resolve_url(const MediaUrl* from, const std::string& text) const;
  [[nodiscard]] MediaExchange make_exchange(const MediaUrl& target, const Budget& budget) const;
  [[nodiscard]] bool names(const HostName& host) const;
  [[nodiscard]] bool is_allowed_address(const boost::asio::ip::address& address) const;

  Options options_;
  std::shared_ptr<const NetTls> tls_;  // with the system's certificate store
};

}  // namespace quire
