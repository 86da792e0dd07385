#pragma once
// Fetches pictures that requests give the address of, from hosts that who runs the server has named and from no others.
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

// http://... or https://...
[[nodiscard]] bool is_web_address(std::string_view url);

// Host names and addresses, without ports. Errors of the field "allowed_media_domains".
[[nodiscard]] Result<std::vector<HostName>> parse_media_domains(const std::vector<std::string>& domains);

struct MediaPlace;
struct MediaExchange;
class NetTls;

class MediaFetcher {
 public:
  struct Options {
    std::vector<HostName> domains;
    std::uint64_t max_bytes = 0;  // of all addresses of a request
    std::chrono::milliseconds timeout{};
  };

  // What a request has taken of both: it is handed on from address to address.
  struct Budget {
    std::optional<std::chrono::steady_clock::time_point> deadline{};  // from the first one on
    std::uint64_t num_bytes = 0;
  };

  explicit MediaFetcher(Options options);

  // The bytes at the address, whatever they are. Any thread, which waits for them. Errors, without a field: `invalid_argument`,
  // `unsupported` (another host), `too_large`.
  Result<std::vector<std::byte>> fetch(std::string_view url, Budget& budget) const;

 private:
  // Of what a request says, or of where `from` leads to.
  [[nodiscard]] Result<MediaPlace> find_place(const MediaPlace* from, const std::string& text) const;
  [[nodiscard]] MediaExchange ask_at(const MediaPlace& place, const Budget& budget) const;
  [[nodiscard]] bool names(const HostName& host) const;
  [[nodiscard]] bool reaches(const boost::asio::ip::address& address) const;

  Options options_;
  std::shared_ptr<const NetTls> tls_;  // the system's store of certificates
};

}  // namespace quire
