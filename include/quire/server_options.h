#pragma once
// Options and limits of the HTTP server, with units and defaults.
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "quire/base/api.h"
#include "quire/base/error.h"
#include "quire/base/pooling.h"
#include "quire/text/generation_config.h"

namespace quire {

// An API key of a tenant. A tenant may have several keys. The server looks up keys (also `api_key`) by their digests, so response times
// reveal nothing about the keys.
struct TenantKey {
  std::string tenant;  // letters, digits, '-', '_' and '.', at most 64
  std::string key;
};

// Options of a Server. Byte limits protect memory; a request that exceeds a limit is rejected.
struct QUIRE_API ServerOptions {
  std::string host = "127.0.0.1";
  std::uint16_t port = 8000;        // 0: any free port
  std::string api_key{};            // the operator's key; empty: no key is required, unless there are tenant keys
  bool allow_remote_admin = false;  // remote clients may also use the routes with Access::admin, such as /pause; requires api_key
  // Tenants may use the model, but not operate or monitor the server. Each tenant sees only its requests.
  std::vector<TenantKey> tenant_keys{};
  // Hashed into the block hashes together with the tenant, so that no tenant can learn from hits or response times what another tenant has
  // sent. Servers with the same secret compute the same block hashes. Empty: all tenants share cached prefixes.
  std::string tenant_secret{};
  // Host names under which clients may reach this server, in addition to localhost and IP addresses; "*": any name. A request with another
  // name gets status 421 if it comes over loopback or if no key is set, because a web page could point its own host name to this server
  // (DNS rebinding).
  std::vector<std::string> allowed_hosts{};
  std::vector<std::string> cors_allow_origins{};  // origins of web pages that may use this server, "https://chat.example.com"; "*": any
  std::vector<std::string> trusted_proxies{};     // IP addresses of proxies with trusted Forwarded and X-Forwarded-For headers
  // Limit for the body of one request. A larger body gets 413 before it is read completely.
  std::uint64_t max_body_bytes = std::uint64_t{16} << 20;
  std::uint64_t max_body_bytes_in_flight = std::uint64_t{64} << 20;  // limit for all connections together, until the requests are parsed
  std::uint32_t max_header_bytes = 32 << 10;
  std::uint32_t max_header_fields = 100;
  // Maximum number of connections, reduced to what the limit of open files allows. When all are in use, a new connection replaces a
  // connection that does not wait for the model, of the client with the most such connections (ConnectionTable). If all of them wait, the
  // new one gets status 503. One sixteenth of the connections never wait for the model.
  std::uint32_t max_connections = 4096;
  std::uint32_t max_choices = 128;                      // limit of the number of prompts times `n` of one request
  std::uint32_t max_pictures = 999;                     // images per request, if the model supports images
  std::uint64_t max_pixels = std::uint64_t{256} << 20;  // in all images of one request together, before scaling
  bool enable_mm_embeds = false;                        // a request may contain encoder outputs instead of images
  // Hosts from which the server fetches image URLs of requests (http, https); empty: none. An address in a private network is fetched only
  // if the list contains the address itself.
  std::vector<std::string> allowed_media_domains{};
  std::uint64_t max_media_bytes = std::uint64_t{16} << 20;  // bytes fetched for one request
  std::uint32_t media_timeout_ms = 10'000;                  // total time of all fetches of one request
  std::uint64_t max_echo_bytes = std::uint64_t{4} << 20;    // prompt text repeated by `echo`, over all choices; held in memory
  // Limit for prompt log probabilities of one request, over all choices: one value per prompt token, plus one per alternative. The server
  // writes them in one piece.
  std::uint64_t max_prompt_logprobs = 256 << 10;
  // Answers that are not streamed may list the experts of each token (docs/requests.md), with at most `max_routed_experts` values for
  // prompts, over all choices.
  bool enable_return_routed_experts = false;
  std::uint64_t max_routed_experts = std::uint64_t{32} << 20;
  // Limit for the values in all token vectors that one call of /pooling requests. The server holds them in memory until the last vector is
  // computed, and writes them in one piece.
  std::uint64_t max_hidden_numbers = std::uint64_t{4} << 20;
  std::uint32_t max_audio_seconds = 1800;                              // length of one audio file
  std::uint64_t max_audio_bytes_in_flight = std::uint64_t{512} << 20;  // decoded audio that is being transcribed: 64,000 bytes per second
  // Limit for answers of /v1/responses stored for `previous_response_id`, with their conversations and tokens. 0: none are stored.
  std::uint64_t max_response_store_bytes = std::uint64_t{64} << 20;
  std::uint64_t max_stream_buffer_bytes = 256 << 10;  // text that a client has not read yet; beyond it the request is aborted
  std::uint32_t send_buffer_bytes = 0;                // socket buffer; 0: the system's default
  std::uint32_t idle_timeout_ms = 75'000;             // between two requests of a connection
  std::uint32_t header_timeout_ms = 10'000;           // from the first byte to the end of the headers
  std::uint32_t body_timeout_ms = 30'000;
  // Bytes per second. A slower body is rejected; after each pause the client has `body_grace_ms` of grace.
  std::uint32_t min_body_rate = 1024;
  std::uint32_t body_grace_ms = 5'000;
  std::uint32_t write_timeout_ms = 30'000;
  std::uint32_t session_timeout_ms = 60'000;        // a streaming session, which holds KV blocks, ends after this time without input
  std::uint32_t max_parse_queue = 1024;             // requests over 4 KiB that wait to be parsed, and as many over 64 KiB; beyond: 503
  std::uint32_t max_parse_ms = 10'000;              // CPU time to parse one request over 4 KiB; a request that needs more gets status 413
  bool low_parse_priority = true;                   // parsing threads yield to computing threads; off for tests on busy machines
  std::uint32_t drain_timeout_ms = 30'000;          // time for running requests to end after a request to stop
  std::uint32_t retry_after_s = 1;                  // reported to a client that gets 429 or 503
  std::uint32_t log_slow_ms = 10'000;               // slower requests are logged as warnings; 0: never
  std::vector<std::string> served_model_aliases{};  // more names of the model, in addition to `EngineOptions::served_model_name`
  std::string chat_template{};                      // replaces the model's template; empty: the model's
  bool allow_runtime_lora_updating = false;         // enables /v1/load_lora_adapter and /v1/unload_lora_adapter, as in vLLM
  bool strict_fields = false;                       // reject fields that would be ignored (X-Quire-Ignored-Fields)
  bool one_call_spelling = false;                   // tool arguments that a grammar constrains have only one spelling per value
  GenerationDefaults generation_defaults{};         // sampling parameters of requests that do not set them
  std::optional<PoolingKind> pooling{};             // kind of embedding vectors; nullopt: as in the model's files
  bool is_matryoshka = false;                       // clients may request shorter vectors, although the model's files do not say so
  std::string hidden_states_folder{};               // folder for hidden states that requests ask for (kv_transfer_params); empty: off
  // Limit for all files in that folder. When it is exceeded, the oldest file of the tenant with the most bytes is removed. 0: no limit.
  std::uint64_t max_hidden_states_bytes = std::uint64_t{4} << 30;
  // OpenTelemetry collector that receives a span per request, "http://127.0.0.1:4318/v1/traces". Empty: none.
  std::string otlp_traces_endpoint{};
  std::string otlp_service_name = "quire";  // service name in these spans
  bool handle_signals = false;              // SIGTERM and SIGINT drain the server; a second signal stops it immediately

  // Returns whether equal prefixes of different tenants share blocks.
  [[nodiscard]] bool tenants_share_cache() const { return !tenant_keys.empty() && tenant_secret.empty(); }
  // Returns an error that names the first field out of range.
  [[nodiscard]] Result<void> validate() const;
};

}  // namespace quire
