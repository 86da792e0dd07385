// Tests the errors of the server's options.
#include "quire/server_options.h"

#include <gtest/gtest.h>

#include <string>

namespace quire {
namespace {

TEST(ServerOptionErrors, NameTheOptionTheProblemAndTheFix) {
  const auto error = [](auto change) {
    ServerOptions options;
    change(options);
    const auto valid = options.validate();
    return valid ? "accepted" : valid.error().to_string();
  };
  EXPECT_EQ(error([](auto&) {}), "accepted");
  EXPECT_EQ(error([](auto& options) { options.allowed_hosts = {"a", "*"}; }), "accepted");
  EXPECT_EQ(error([](auto& options) { options.allowed_hosts = {"a", "b:1"}; }),
            "allowed_host: 'b:1' is not a host name; use a host name without scheme and port");
  EXPECT_EQ(error([](auto& options) { options.cors_allow_origins = {"*", "null", "https://a:1"}; }), "accepted");
  for (const char* wrong : {"a", "https://a/", "https://u@a", "https://a?b", "https://a#b", "https:"})
    EXPECT_EQ(error([&](auto& options) { options.cors_allow_origins = {wrong}; }),
              "cors_allow_origin: '" + std::string(wrong) +
                  "' is not an origin; use only scheme, host and port, such as https://chat.example.com");
  EXPECT_EQ(error([](auto& options) { options.trusted_proxies = {"127.0.0.1", "::1"}; }), "accepted");
  EXPECT_EQ(error([](auto& options) { options.trusted_proxies = {"localhost"}; }),
            "trusted_proxy: 'localhost' is not an IP address; use an IP address such as 127.0.0.1");
  for (const char* key : {"a b", "a\tb", "a\r", "\na"})
    EXPECT_EQ(error([&](auto& options) { options.api_key = key; }), "api_key: contains white space; use a key of visible characters");
  EXPECT_EQ(error([](auto& options) { options.allow_remote_admin = true; }),
            "allow_remote_admin: is set without api_key: anyone could pause the engine; set --api-key as well");
  EXPECT_EQ(error([](auto& options) { options.allow_remote_admin = true, options.api_key = "k"; }), "accepted");
  EXPECT_TRUE(error([](auto& options) {
                options.max_body_bytes_in_flight = 2 * options.max_body_bytes - 1;
              }).starts_with("max_body_bytes_in_flight: "));
  EXPECT_EQ(error([](auto& options) { options.max_body_bytes_in_flight = 2 * options.max_body_bytes; }), "accepted");
  EXPECT_TRUE(error([](auto& options) {
                options.max_audio_bytes_in_flight = options.max_audio_seconds * 64'000 - 1;
              }).starts_with("max_audio_bytes_in_flight: "));
  EXPECT_EQ(error([](auto& options) { options.max_audio_bytes_in_flight = options.max_audio_seconds * 64'000; }), "accepted");
  EXPECT_TRUE(error([](auto& options) { options.otlp_traces_endpoint = "x"; }).starts_with("otlp_traces_endpoint: 'x' is not a valid URL"));
  EXPECT_TRUE(error([](auto& options) { options.allowed_media_domains = {"a:1"}; }).starts_with("allowed_media_domains: 'a:1'"));
}

}  // namespace
}  // namespace quire
