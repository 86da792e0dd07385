// Parses the parts of a multipart form. Reads the body once from front to back: each search continues after the end of the previous one.
#include "server/api/audio/form_data.h"

#include <fmt/format.h>

#include <algorithm>
#include <boost/beast/core/string.hpp>
#include <optional>
#include <utility>

#include "base/trim.h"
#include "server/http/error_response.h"

namespace quire {

namespace beast = boost::beast;

namespace {

constexpr std::size_t kMaxBoundary = 70;
constexpr std::size_t kMaxHeadBytes = 4096;  // per part
constexpr std::size_t kMaxNameBytes = 256;

std::unexpected<Error> broken(std::string problem) {
  return fail(ErrorCode::invalid_argument, "body", std::move(problem), "send multipart/form-data as RFC 7578 defines it");
}

constexpr std::string_view kBlanks = " \t";

// Removes the value of a header parameter, quoted or not, from the front of `rest` and returns it. Returns nullopt if the closing quote is
// missing.
std::optional<std::string> take_value(std::string_view& rest) {
  std::string value;
  if (!rest.starts_with('"')) {
    const std::size_t end = std::min(rest.find(';'), rest.size());
    value = trim(rest.substr(0, end), kBlanks);
    rest.remove_prefix(end);
    return value;
  }
  for (std::size_t i = 1; i < rest.size(); ++i) {
    if (rest[i] == '"') {
      rest.remove_prefix(i + 1);
      return value;
    }
    if (rest[i] == '\\' && i + 1 < rest.size() && (rest[i + 1] == '"' || rest[i + 1] == '\\')) ++i;
    value += rest[i];
  }
  return std::nullopt;
}

// Returns the parameter `wanted` of a header such as "form-data; name=x; filename=y". Parameters after a malformed one are not found.
std::optional<std::string> parameter(std::string_view header, std::string_view wanted) {
  std::string_view rest = header.substr(std::min(header.find(';'), header.size()));
  while (rest.starts_with(';')) {
    rest = rest.substr(1);
    const std::size_t equals = std::min(rest.find('='), rest.size());
    const std::string_view name = trim(rest.substr(0, equals), kBlanks);
    if (equals == rest.size()) return std::nullopt;
    rest = trim(rest.substr(equals + 1), kBlanks);
    auto value = take_value(rest);
    if (!value) return std::nullopt;
    if (beast::iequals(name, wanted)) return value;
    rest = trim(rest, kBlanks);
  }
  return std::nullopt;
}

Result<std::string> delimiter_of(std::string_view content_type) {
  const auto boundary = parameter(content_type, "boundary");
  if (!boundary || boundary->empty() || boundary->size() > kMaxBoundary || boundary->find_first_of("\r\n") != std::string::npos)
    return fail(ErrorCode::invalid_argument, "Content-Type", "has no valid boundary",
                "send 'multipart/form-data; boundary=...' with 1 to 70 characters");
  return "\r\n--" + *boundary;
}

// Parses the header lines of a part.
Result<FormPart> read_head(std::string_view head) {
  FormPart part;
  bool has_name = false;
  while (!head.empty()) {
    const std::size_t end = std::min(head.find("\r\n"), head.size());
    const std::string_view line = head.substr(0, end);
    head.remove_prefix(std::min(end + 2, head.size()));
    const std::size_t colon = std::min(line.find(':'), line.size());
    const std::string_view name = trim(line.substr(0, colon), kBlanks);
    const std::string_view value = trim(line.substr(std::min(colon + 1, line.size())), kBlanks);
    if (beast::iequals(name, "content-transfer-encoding") && !beast::iequals(value, "binary") && !beast::iequals(value, "8bit") &&
        !beast::iequals(value, "7bit"))
      return broken(fmt::format("has a part with the unsupported Content-Transfer-Encoding '{}'", shown(value)));
    if (!beast::iequals(name, "content-disposition")) continue;
    auto field = parameter(value, "name");
    if (!field || field->empty() || field->size() > kMaxNameBytes) return broken("has a part without a name");
    part.name = *std::move(field);
    part.is_file = parameter(value, "filename").has_value() || parameter(value, "filename*").has_value();
    has_name = true;
  }
  if (!has_name) return broken("has a part without a name");
  return part;
}

}  // namespace

Result<std::vector<FormPart>> parse_form(std::string_view content_type, std::string_view body) {
  const auto delimiter = delimiter_of(content_type);
  if (!delimiter) return std::unexpected(delimiter.error());
  // The first delimiter may be at the very beginning of the body, without a line break before it.
  std::string_view rest = body;
  if (rest.starts_with(std::string_view(*delimiter).substr(2))) {
    rest.remove_prefix(delimiter->size() - 2);
  } else {
    const std::size_t at = rest.find(*delimiter);
    if (at == std::string_view::npos) return broken("does not contain the boundary");
    rest.remove_prefix(at + delimiter->size());
  }
  std::vector<FormPart> parts;
  while (!rest.starts_with("--")) {
    if (parts.size() == kMaxFormParts)
      return fail(ErrorCode::invalid_argument, "body", fmt::format("has more than {} parts", kMaxFormParts), "send fewer parts");
    const std::string_view padding = rest.substr(0, std::min(rest.find_first_not_of(" \t"), rest.size()));
    rest.remove_prefix(padding.size());
    if (!rest.starts_with("\r\n")) return broken("has other characters after a boundary on the same line");
    rest.remove_prefix(2);
    // A part without any header line also counts as a part without a name.
    const std::size_t head_end = rest.substr(0, kMaxHeadBytes).find("\r\n\r\n");
    if (head_end == std::string_view::npos) return broken("has a part whose headers are incomplete or too large");
    auto part = read_head(rest.substr(0, head_end));
    if (!part) return std::unexpected(std::move(part.error()));
    rest.remove_prefix(head_end + 4);
    const std::size_t end = rest.find(*delimiter);
    if (end == std::string_view::npos) return broken("ends in the middle of a part");
    part->value = rest.substr(0, end);
    rest.remove_prefix(end + delimiter->size());
    parts.push_back(*std::move(part));
  }
  return parts;
}

}  // namespace quire
