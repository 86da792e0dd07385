#include "cli/flags/picture_flags.h"

#include <charconv>
#include <string>
#include <string_view>

namespace quire {
namespace {

// {"image": 4}, as vLLM has it, or image=4.
bool read_picture_limit(const std::string& given, std::uint32_t& most) {
  std::string text;
  for (const char c : given)
    if (std::string_view(" {}\"").find(c) == std::string_view::npos) text += c == ':' ? '=' : c;
  constexpr std::string_view kName = "image=";
  if (!text.starts_with(kName)) return false;
  const auto read = std::from_chars(text.data() + kName.size(), text.data() + text.size(), most);
  return read.ec == std::errc() && read.ptr == text.data() + text.size();
}

}  // namespace

void add_picture_flags(CLI::App& app, ServerOptions& server) {
  app.add_option_function<std::string>(
         "--limit-mm-per-prompt",
         [&server](const std::string& given) {
           if (!read_picture_limit(given, server.max_pictures))
             throw CLI::ValidationError("--limit-mm-per-prompt", "'" + given.substr(0, 100) + R"(' is not of the form {"image": 4})");
         },
         R"(Pictures that one request may show, where the model sees, as JSON: {"image": 4}; 0: none (default 999))")
      ->type_name("JSON");
  app.add_flag("--enable-mm-embeds,!--no-enable-mm-embeds", server.enable_mm_embeds,
               "Requests may bring what the model's encoder has made of a picture elsewhere, in its place (default: they may not)");
  app.add_option(
         "--allowed-media-domains", server.allowed_media_domains,
         "Hosts from which pictures are fetched that requests give the address of, joined by commas; one in a private network by its "
         "own address, too (default: nothing is fetched)")
      ->delimiter(',')
      ->type_name("HOST");
  app.add_option("--max-media-bytes", server.max_media_bytes, "Pictures that one request has fetched, together")->capture_default_str();
  app.add_option("--media-timeout-ms", server.media_timeout_ms, "How long fetching them may take, all together")->capture_default_str();
}

}  // namespace quire
