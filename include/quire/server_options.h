#pragma once
// Limits of the server, with units and defaults.
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "quire/base/api.h"
#include "quire/base/error.h"
#include "quire/base/pooling.h"
#include "quire/text/generation_config.h"

namespace quire {

// Who sends this key is this tenant. A tenant may have several keys.
// Keys (api_key too) are looked up by their digests, so the time of an answer tells nothing of one.
struct TenantKey {
  std::string tenant;  // letters, digits, '-', '_' and '.', at most 64
  std::string key;
};

struct QUIRE_API ServerOptions {
  std::string host = "127.0.0.1";
  std::uint16_t port = 8000;        // 0: any free one
  std::string api_key{};            // of who operates the server; empty: no key asked for, unless tenants have some
  bool allow_remote_admin = false;  // /pause, /resume, /reset_prefix_cache also for clients on other machines; needs api_key
  // Tenants may use the model, and neither operate nor watch the server. Each sees its own requests only.
  std::vector<TenantKey> tenant_keys{};
  // Goes with the tenant into the names of cached blocks: no tenant finds, by a hit or by the time of an answer, what another has sent.
  // Blocks have the same names wherever the secret is the same. Empty: equal prefixes are shared by all.
  std::string tenant_secret{};
  // Names besides localhost, 127.0.0.0/8 and [::1] under which clients may reach this over loopback; "*": any.
  std::vector<std::string> allowed_hosts{};
  std::vector<std::string> cors_allow_origins{};  // web pages that may use this, "https://chat.example.com"; "*": any
  std::vector<std::string> trusted_proxies{};     // IP addresses whose Forwarded and X-Forwarded-For headers count
  // Of one request's body; a larger one is refused with 413 before it has been read whole.
  std::uint64_t max_body_bytes = std::uint64_t{16} << 20;
  std::uint64_t max_body_bytes_in_flight = std::uint64_t{64} << 20;  // of all connections together, until the requests are parsed
  std::uint32_t max_header_bytes = 32 << 10;
  std::uint32_t max_header_fields = 100;
  // At most as many as the process has descriptors for. At the limit the longest waiting idle or half-heard client makes room for a new
  // one.
  std::uint32_t max_connections = 4096;
  std::uint32_t max_choices = 128;   // prompts times n of one request
  std::uint32_t max_pictures = 999;  // of one request, where the model sees
  bool enable_mm_embeds = false;     // a request may bring what an encoder has made of a picture, in its place
  // Hosts from which pictures are fetched that requests give the address of (http, https); empty: none are. An address of a private
  // network is reached only where it is named itself.
  std::vector<std::string> allowed_media_domains{};
  std::uint64_t max_media_bytes = std::uint64_t{16} << 20;  // that one request has fetched
  std::uint32_t media_timeout_ms = 10'000;                  // for all that one request has fetched
  std::uint64_t max_echo_bytes = std::uint64_t{4} << 20;    // prompt repeated by `echo`, over all choices: it waits in memory
  // One per token of the prompt, and as many more as it has alternatives, over all choices that tell them: they are written at once.
  std::uint64_t max_prompt_logprobs = 256 << 10;
  // Whole answers tell which experts each token has gone through (docs/requests.md); so many numbers of prompts at most, over all choices.
  bool enable_return_routed_experts = false;
  std::uint64_t max_routed_experts = std::uint64_t{32} << 20;
  // Of the rows of all tokens that a call asks for (/pooling): they wait in memory for the last one, and are written at once.
  std::uint64_t max_hidden_numbers = std::uint64_t{4} << 20;
  std::uint32_t max_sound_seconds = 1800;                              // of one recording
  std::uint64_t max_sound_bytes_in_flight = std::uint64_t{512} << 20;  // of all recordings that are heard, decoded: 64,000 bytes a second
  // Answers of /v1/responses that are kept for `previous_response_id`, with their conversations and tokens; 0: none are.
  std::uint64_t max_response_store_bytes = std::uint64_t{64} << 20;
  std::uint64_t max_stream_buffer_bytes = 256 << 10;  // text a client has not read yet; beyond it its request is aborted
  std::uint32_t send_buffer_bytes = 0;                // of the socket; 0: the system's default
  std::uint32_t idle_timeout_ms = 75'000;             // between two requests of a connection
  std::uint32_t header_timeout_ms = 10'000;           // from the first byte to the end of the headers
  std::uint32_t body_timeout_ms = 30'000;
  std::uint32_t write_timeout_ms = 30'000;
  std::uint32_t session_timeout_ms = 60'000;        // a streaming session whose client says nothing: it holds blocks of the KV cache
  std::uint32_t max_parse_queue = 1024;             // requests over 4 KiB that wait to be read, and as many over 64 KiB; others get 503
  bool low_parse_priority = true;                   // those give way to computing threads; tests on busy machines cannot wait so long
  std::uint32_t drain_timeout_ms = 30'000;          // running requests after a request to stop
  std::uint32_t retry_after_s = 1;                  // told to a client that is refused with 429 or 503
  std::uint32_t log_slow_ms = 10'000;               // requests that take longer are warnings in the log; 0: none are
  std::vector<std::string> served_model_aliases{};  // further names of the model, besides EngineOptions::served_model_name
  std::string chat_template{};                      // instead of the model's own; empty: that one
  bool allow_runtime_lora_updating = false;         // /v1/load_lora_adapter and /v1/unload_lora_adapter (vLLM's variable of this name)
  bool strict_fields = false;                       // a field that would be ignored (X-Quire-Ignored-Fields) is refused
  bool one_call_spelling = false;                   // of tools' arguments that a grammar holds, each value is written in one way
  GenerationDefaults generation_defaults{};         // of requests that do not say it themselves
  std::optional<PoolingKind> pooling{};             // of vectors of texts; nullopt: as the model's files say
  bool is_matryoshka = false;                       // shorter vectors may be asked for, though the model's files do not say so
  std::string hidden_states_folder{};               // where calls may have them written to (kv_transfer_params); empty: nowhere
  // Where a span of each request goes: an OpenTelemetry collector, "http://127.0.0.1:4318/v1/traces". Empty: nowhere.
  std::string otlp_traces_endpoint{};
  std::string otlp_service_name = "quire";  // what these spans say that they are of
  bool handle_signals = false;              // SIGTERM and SIGINT drain; a second one stops at once

  // Every field in its range, or an error that names the field.
  [[nodiscard]] Result<void> validate() const;
};

}  // namespace quire
