#include "server/operate/page_reply.h"

#include <fmt/format.h>

#include <span>

#include "base/base64.h"
#include "base/digest.h"

namespace quire {

namespace {

// Returns the CSP sources of all elements with this tag. An element's tag has no attributes.
std::string sources_of(std::string_view html, std::string_view tag) {
  const std::string begin = fmt::format("<{}>", tag), end = fmt::format("</{}>", tag);
  std::string sources;
  for (std::size_t at = html.find(begin); at != std::string_view::npos; at = html.find(begin, at)) {
    at += begin.size();
    const std::string_view text = html.substr(at, html.find(end, at) - at);
    const Sha256Digest digest = Sha256::of(std::as_bytes(std::span(text)));
    sources += fmt::format(" 'sha256-{}'", base64_of(std::as_bytes(std::span(digest))));
    at += text.size();
  }
  return sources.empty() ? " 'none'" : sources;
}

}  // namespace

std::string page_policy(std::string_view html) {
  return fmt::format(
      "default-src 'none'; style-src{}; script-src{}; img-src data:; connect-src 'self'; base-uri 'none'; form-action 'none'; "
      "require-trusted-types-for 'script'; trusted-types 'none'; frame-ancestors 'none'",
      sources_of(html, "style"), sources_of(html, "script"));
}

Reply page_reply(std::string_view html, const std::string& policy) {
  Reply reply{HttpResponse{200, "text/html; charset=utf-8", std::string(html), {}}};
  reply.response.headers = {{"Content-Security-Policy", policy}, {"Cache-Control", "no-cache"}};
  return reply;
}

}  // namespace quire
