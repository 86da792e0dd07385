#pragma once
// The options of the HTTP server: one row for each scalar member of ServerOptions. A row gives the option its flag in `quire serve`, its
// check, its name in errors, and its line in docs/options.md. Rows of the same group of --help are adjacent, in the order of --help.
#include "quire/base/option.h"
#include "quire/server_options.h"

namespace quire {

// Upper bound of sizes in bytes. It keeps sums of what clients may send within the ranges of the types that count them.
inline constexpr std::uint64_t kMaxServerBytes = std::uint64_t{1} << 40;
inline constexpr OptionRange kUpToOneGi{0, 1U << 30U};
inline constexpr OptionRange kUpToOneDayMs{1, 86'400'000};
inline constexpr const char* kFixed = "fixed in `quire serve`";

// clang-format off
inline constexpr auto kServerOptions = std::to_array<Option<ServerOptions>>({
    {member<&ServerOptions::allow_runtime_lora_updating>, {.flag = "--allow-runtime-lora-updating", .group = OptionGroup::lora,
     .help = "Let operators load and unload adapters while the server runs: POST /v1/load_lora_adapter, /v1/unload_lora_adapter (default "
             "off)"}},

    {member<&ServerOptions::host>, {.flag = "--host", .group = OptionGroup::server,
     .help = "Address to listen on. 0.0.0.0 opens the server to the network: then set --api-key"}},
    {member<&ServerOptions::port>, {.flag = "--port", .group = OptionGroup::server, .help = "Port to listen on; 0: any free port"}},
    {member<&ServerOptions::max_body_bytes>, {.flag = "--max-body-bytes", .group = OptionGroup::server,
     .range = OptionRange{1024, 1U << 28U}, .help = "Maximum size of a request body, in bytes; larger requests get status 413"}},
    {member<&ServerOptions::max_body_bytes_in_flight>, {.flag = "--max-body-bytes-in-flight", .group = OptionGroup::server,
     .help = "Maximum size of all request bodies that are not parsed yet, in bytes; further requests get status 503 and can be retried"}},
    {member<&ServerOptions::max_parse_ms>, {.flag = "--max-parse-ms", .group = OptionGroup::server, .range = kUpToOneDayMs,
     .help = "Maximum CPU time to parse one request over 4 KiB (messages, template, tokens, images), in milliseconds; a request that "
             "needs more gets status 413"}},
    {member<&ServerOptions::max_connections>, {.flag = "--max-connections", .group = OptionGroup::server,
     .range = OptionRange{1, 1'000'000},
     .help = "Maximum number of connections. A further one replaces a connection that does not wait for the model, of the client with "
             "the most such connections. If all wait for the model, the new one gets status 503"}},
    {member<&ServerOptions::session_timeout_ms>, {.flag = "--session-timeout-ms", .group = OptionGroup::server, .range = kUpToOneDayMs,
     .help = "Maximum time for which a session of /v1/completions may wait for more of its prompt, in milliseconds; its KV blocks stay "
             "cached until other requests need them"}},
    {member<&ServerOptions::max_response_store_bytes>, {.flag = "--response-store", .field = "max_response_store_bytes",
     .group = OptionGroup::server, .kind = OptionKind::bytes, .shown_default = "64MiB", .range = OptionRange{0, kMaxServerBytes},
     .help = "Memory for stored answers of /v1/responses, which clients can continue. When it is full, the tenant that uses most loses "
             "its oldest answer. 0: off"}},
    {member<&ServerOptions::strict_fields>, {.flag = "--strict-fields", .group = OptionGroup::server,
     .help = "Reject requests with fields or tools that would be ignored (default: the header X-Quire-Ignored-Fields lists them)"}},
    {member<&ServerOptions::one_call_spelling>, {.flag = "--tool-call-one-spelling", .group = OptionGroup::server,
     .help = "Constrain tool arguments to one spelling of each value, so that equal calls are equal text (default: all valid JSON)"}},
    {member<&ServerOptions::enable_return_routed_experts>, {.flag = "--enable-return-routed-experts", .group = OptionGroup::server,
     .help = "Return the experts of each token (routed_experts) in answers that are not streamed, unless a request turns it off. Such "
             "requests do not read the prefix cache"}},
    {member<&ServerOptions::drain_timeout_ms>, {.flag = "--drain-timeout-ms", .group = OptionGroup::server,
     .range = OptionRange{0, kUpToOneDayMs.high},
     .help = "Maximum time for which running requests may continue after SIGTERM or SIGINT, in milliseconds; a second signal stops the "
             "server immediately"}},
    {member<&ServerOptions::hidden_states_folder>, {.flag = "--hidden-states", .group = OptionGroup::server,
     .kind = OptionKind::existing_folder, .type = "DIR",
     .help = "Folder to which requests can write the hidden states of their prompts (kv_transfer_params)"}},
    {member<&ServerOptions::max_hidden_states_bytes>, {.flag = "--hidden-states-budget", .group = OptionGroup::server,
     .kind = OptionKind::bytes, .shown_default = "4GiB",
     .help = "Maximum size of all files in --hidden-states. When it is exceeded, the tenant that uses most loses its oldest file. 0: no "
             "limit"}},
    {member<&ServerOptions::is_matryoshka>, {.flag = "--matryoshka", .group = OptionGroup::server,
     .help = "Allow requests for shorter vectors (dimensions) even if the files of the model do not declare support"}},
    {nullptr, {.flag = "--pooling", .group = OptionGroup::server}},

    {member<&ServerOptions::max_pictures>, {.flag = "--limit-mm-per-prompt", .field = "max_pictures", .group = OptionGroup::multimodal,
     .kind = OptionKind::parsed, .range = OptionRange{0, 100'000}}},
    {member<&ServerOptions::max_pixels>, {.flag = "--max-pixels", .group = OptionGroup::multimodal,
     .range = OptionRange{1, kMaxServerBytes},
     .help = "Maximum number of pixels of all images in one request, before scaling; larger requests get status 413"}},
    {member<&ServerOptions::enable_mm_embeds>, {.flag = "--enable-mm-embeds", .group = OptionGroup::multimodal, .can_be_negated = true,
     .help = "Accept encoder outputs (image embeddings) computed elsewhere in place of images (default off)"}},
    {member<&ServerOptions::allowed_media_domains>, {.flag = "--allowed-media-domains", .group = OptionGroup::multimodal, .type = "HOST",
     .separated_by_commas = true,
     .help = "Hosts from which image URLs in requests are fetched, separated by commas. A listed host name may only lead to public "
             "addresses; list a private address itself to allow it (default: nothing is fetched)"}},
    {member<&ServerOptions::max_media_bytes>, {.flag = "--max-media-bytes", .group = OptionGroup::multimodal,
     .range = OptionRange{1024, 1U << 28U}, .help = "Maximum size of all images fetched for one request, in bytes"}},
    {member<&ServerOptions::media_timeout_ms>, {.flag = "--media-timeout-ms", .group = OptionGroup::multimodal,
     .range = OptionRange{1, 600'000}, .help = "Maximum time to fetch all images of one request, in milliseconds"}},
    {member<&ServerOptions::max_audio_seconds>, {.flag = "--max-audio-seconds", .group = OptionGroup::multimodal,
     .range = OptionRange{1, 86'400}, .help = "Maximum length of audio to transcribe, in seconds"}},
    {member<&ServerOptions::max_audio_bytes_in_flight>, {.flag = "--max-audio-bytes-in-flight", .group = OptionGroup::multimodal,
     .help = "Maximum memory for all audio being transcribed, in bytes; one second of audio takes 64000 bytes"}},

    {member<&ServerOptions::allow_remote_admin>, {.flag = "--allow-remote-admin", .group = OptionGroup::security,
     .help = "Let clients on other machines operate the server: pause, resume, reset of caches, saved journals, adapters, /v1/watch; "
             "requires --api-key (default: only clients on this machine)"}},
    {member<&ServerOptions::allowed_hosts>, {.flag = "--allowed-host", .group = OptionGroup::security,
     .help = "Additional host name, besides localhost and IP addresses, under which clients reach the server over loopback (through a "
             "local proxy) or, without a key, over the network; repeatable, '*': any"}},
    {member<&ServerOptions::cors_allow_origins>, {.flag = "--cors-allow-origin", .group = OptionGroup::security,
     .help = "Origin of web pages that may use the server, such as https://chat.example.com; repeatable, '*': any (default: only the "
             "built-in chat page)"}},
    {member<&ServerOptions::trusted_proxies>, {.flag = "--trusted-proxy", .group = OptionGroup::security,
     .help = "IP address of a proxy whose Forwarded or X-Forwarded-For header is trusted to name the client; repeatable (default: none)"}},
    {member<&ServerOptions::api_key>, {.flag = "--api-key", .group = OptionGroup::security, .env = "QUIRE_API_KEY",
     .help = "API key that clients must send as a Bearer token or in x-api-key, unless they use a tenant key"}},
    {nullptr, {.flag = "--tenant-keys-file", .group = OptionGroup::security, .note = "adds to `tenant_keys`"}},
    {nullptr, {.flag = "--tenant-key", .group = OptionGroup::security, .note = "adds to `tenant_keys`"}},
    {member<&ServerOptions::tenant_secret>, {.flag = "--tenant-secret", .group = OptionGroup::security, .env = "QUIRE_TENANT_SECRET",
     .help = "Secret that is mixed into block hashes, so that tenants do not share cached prefixes (default: all tenants share equal "
             "prefixes)"}},

    {member<&ServerOptions::otlp_traces_endpoint>, {.flag = "--otlp-traces-endpoint", .group = OptionGroup::observability, .type = "URL",
     .help = "URL of an OpenTelemetry collector that receives a span for each request, as OTLP over HTTP: "
             "http://127.0.0.1:4318/v1/traces. Spans continue the traces of clients (traceparent)"}},
    {member<&ServerOptions::otlp_service_name>, {.flag = "--otlp-service-name", .group = OptionGroup::observability,
     .env = "OTEL_SERVICE_NAME", .help = "Service name in the spans of --otlp-traces-endpoint"}},
    {member<&ServerOptions::log_slow_ms>, {.flag = "--log-slow-ms", .group = OptionGroup::observability,
     .help = "Duration in milliseconds from which a request is logged as a warning; 0: off"}},

    {member<&ServerOptions::max_header_bytes>, {.field = "max_header_bytes", .range = OptionRange{1024, 1U << 20U}, .note = kFixed}},
    {member<&ServerOptions::max_header_fields>, {.field = "max_header_fields", .range = OptionRange{8, 10'000}, .note = kFixed}},
    {member<&ServerOptions::max_choices>, {.field = "max_choices", .range = OptionRange{1, 65'536}, .note = kFixed}},
    {member<&ServerOptions::max_parse_queue>, {.field = "max_parse_queue", .range = OptionRange{1, 65'536}, .note = kFixed}},
    {member<&ServerOptions::max_echo_bytes>, {.field = "max_echo_bytes", .range = kUpToOneGi, .note = kFixed}},
    {member<&ServerOptions::max_prompt_logprobs>, {.field = "max_prompt_logprobs", .range = kUpToOneGi, .note = kFixed}},
    {member<&ServerOptions::max_routed_experts>, {.field = "max_routed_experts", .range = kUpToOneGi, .note = kFixed}},
    {member<&ServerOptions::max_hidden_numbers>, {.field = "max_hidden_numbers", .range = OptionRange{0, kMaxPooledValues},
     .note = kFixed}},
    {member<&ServerOptions::max_stream_buffer_bytes>, {.field = "max_stream_buffer_bytes", .range = OptionRange{1024, kUpToOneGi.high},
     .note = kFixed}},
    {member<&ServerOptions::send_buffer_bytes>, {.field = "send_buffer_bytes", .note = kFixed}},
    {member<&ServerOptions::idle_timeout_ms>, {.field = "idle_timeout_ms", .range = kUpToOneDayMs, .note = kFixed}},
    {member<&ServerOptions::header_timeout_ms>, {.field = "header_timeout_ms", .range = kUpToOneDayMs, .note = kFixed}},
    {member<&ServerOptions::body_timeout_ms>, {.field = "body_timeout_ms", .range = kUpToOneDayMs, .note = kFixed}},
    {member<&ServerOptions::body_grace_ms>, {.field = "body_grace_ms", .range = kUpToOneDayMs, .note = kFixed}},
    {member<&ServerOptions::write_timeout_ms>, {.field = "write_timeout_ms", .range = kUpToOneDayMs, .note = kFixed}},
    {member<&ServerOptions::min_body_rate>, {.field = "min_body_rate", .range = kUpToOneGi, .note = kFixed}},
    {member<&ServerOptions::retry_after_s>, {.field = "retry_after_s", .range = OptionRange{0, 3600}, .note = kFixed}},
    {member<&ServerOptions::low_parse_priority>, {.field = "low_parse_priority", .note = kFixed}},
    {member<&ServerOptions::handle_signals>, {.field = "handle_signals", .note = "always on in `quire serve`"}},
    {member<&ServerOptions::chat_template>, {.flag = "--chat-template", .group = OptionGroup::model, .kind = OptionKind::parsed,
     .note = "the text of that file"}},
    {member<&ServerOptions::served_model_aliases>, {.field = "served_model_aliases",
     .note = "the second and later names of `--served-model-name`"}},
});
// clang-format on

}  // namespace quire
