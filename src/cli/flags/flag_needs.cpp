#include "cli/flags/flag_needs.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <string>

namespace quire {
namespace {

using Served = ServedFeatures;

bool has_dram_or_disk(const Served& served) {
  return served.tiers.kv_dram.bytes > 0 || !served.tiers.kv_disk.folder.empty();
}

bool has_tier(const Served& served) {
  return has_dram_or_disk(served) || !served.tiers.kv_remote.address.empty() || !served.tiers.kv_peer_cache.peers.empty();
}

bool has_offloading(const Served& served) {
  return std::ranges::any_of(served.tiers.kv_connectors,
                             [](const std::string& text) { return text.find("OffloadingConnector") != std::string::npos; });
}

bool has_role(const Served& served) {
  return served.tiers.kv_peer.role != KvRole::none;
}

bool is_producer(const Served& served) {
  return served.tiers.kv_peer.role == KvRole::producer || served.tiers.kv_peer.role == KvRole::both;
}

bool loads_blocks(const Served& served) {
  return has_tier(served) || has_role(served) || !served.tiers.kv_connectors.empty();
}

bool uses_prompt_lookup(const Served& served) {
  return served.engine.speculation.num_speculative_tokens > 0 && served.engine.draft_model.empty();
}

bool is_continuum(const Served& served) {
  return served.engine.scheduler.policy == SchedulingPolicy::continuum;
}

bool has_lora(const Served& served) {
  return served.lora.enable_lora;
}

bool has_trace(const Served& served) {
  return !served.engine.trace.path.empty();
}

bool has_journal(const Served& served) {
  return !served.engine.journal.folder.empty();
}

bool keeps_journal(const Served& served) {
  return has_journal(served) || served.engine.journal.memory_bytes > 0;
}

bool saves_journal(const Served& served) {
  return served.engine.journal.memory_bytes > 0;
}

bool has_swap(const Served& served) {
  return served.engine.kv_swap.is_on();
}

bool caches_prefixes(const Served& served) {
  return served.engine.cache.enable_prefix_caching;
}

bool supports_images(const Served& served) {
  return served.model.pictures.any();
}

bool fetches(const Served& served) {
  return supports_images(served) && !served.server.allowed_media_domains.empty();
}

bool supports_audio(const Served& served) {
  return served.model.has_encoder();
}

bool has_tenants(const Served& served) {
  return !served.server.tenant_keys.empty();
}

constexpr const char* kAddTier = "add --kv-dram, --kv-disk, --kv-remote or --kv-peers";
constexpr const char* kAddRole = "add --kv-role producer or both";
constexpr const char* kAddContinuum = "add --scheduling-policy continuum";
constexpr const char* kAddLora = "add --enable-lora";
constexpr const char* kAddTrace = "add --trace PATH";
constexpr const char* kCachePrefixes = "remove --no-enable-prefix-caching, or serve a model without an encoder";
constexpr const char* kServeImageModel = "serve a model that supports images (a GGUF file needs --mmproj)";
constexpr const char* kServeAudioModel = "serve a Whisper model";

constexpr std::array kNeeds = {
    FlagNeed{"--kv-policy", [](const Served& served) { return has_tier(served) || has_offloading(served); }, "a tier",
             "add --kv-dram, --kv-disk, --kv-remote, --kv-peers or --kv-connector OffloadingConnector"},
    FlagNeed{"--kv-join-loads", has_tier, "a tier", kAddTier},
    FlagNeed{"--kv-store-threshold", has_dram_or_disk, "a tier in host memory or on disk", "add --kv-dram or --kv-disk"},
    FlagNeed{"--kv-max-tracker-size",
             [](const Served& served) {
               return has_dram_or_disk(served) && std::max(served.tiers.kv_dram.store_threshold, served.tiers.kv_disk.store_threshold) > 1;
             },
             "a store threshold of 2 or more", "add --kv-store-threshold 2 (or more) and --kv-dram or --kv-disk"},
    FlagNeed{"--kv-load-failure-policy", loads_blocks, "a tier or connector to load from",
             "add --kv-dram, --kv-disk, --kv-remote, --kv-peers, --kv-connector or --kv-role"},
    FlagNeed{"--kv-disk-write-through", [](const Served& served) { return served.tiers.kv_dram.bytes > 0; }, "a tier in host memory",
             "add --kv-dram"},
    FlagNeed{"--kv-key", [](const Served& served) { return has_role(served) || served.tiers.kv_peer_cache.is_on(); },
             "servers to exchange blocks with", "add --kv-role, --kv-peers or --kv-share"},
    FlagNeed{"--kv-host", is_producer, "the producer role", kAddRole},
    FlagNeed{"--kv-port", is_producer, "the producer role", kAddRole},
    FlagNeed{"--kv-lease", is_producer, "the producer role", kAddRole},
    FlagNeed{"--kv-producers", has_role, "the consumer role", "add --kv-role consumer or both"},
    FlagNeed{"--kv-swap-choice", has_swap, "memory or files for swapped-out blocks", "add --kv-swap or --kv-swap-disk"},
    FlagNeed{"--prompt-lookup-min", uses_prompt_lookup, "speculative decoding by prompt lookup",
             "add --num-speculative-tokens, and remove --speculative-model"},
    FlagNeed{"--prompt-lookup-max", uses_prompt_lookup, "speculative decoding by prompt lookup",
             "add --num-speculative-tokens, and remove --speculative-model"},
    FlagNeed{"--continuum-pin", is_continuum, "the continuum policy", kAddContinuum},
    FlagNeed{"--continuum-longest-tool", is_continuum, "the continuum policy", kAddContinuum},
    FlagNeed{"--continuum-max-jobs", is_continuum, "the continuum policy", kAddContinuum},
    FlagNeed{"--continuum-max-tools", is_continuum, "the continuum policy", kAddContinuum},
    FlagNeed{"--max-loras", has_lora, "LoRA adapters", kAddLora},
    FlagNeed{"--max-lora-rank", has_lora, "LoRA adapters", kAddLora},
    FlagNeed{"--max-cpu-loras", has_lora, "LoRA adapters", kAddLora},
    FlagNeed{"--allow-runtime-lora-updating", has_lora, "LoRA adapters", kAddLora},
    FlagNeed{"--trace-every", has_trace, "a trace", kAddTrace},
    FlagNeed{"--trace-max-steps", has_trace, "a trace", kAddTrace},
    FlagNeed{"--trace-file-bytes", has_trace, "a trace", kAddTrace},
    FlagNeed{"--trace-files", has_trace, "a trace", kAddTrace},
    FlagNeed{"--journal-max-bytes", has_journal, "a journal in files", "add --journal DIR"},
    FlagNeed{"--journal-tokens", keeps_journal, "a journal", "add --journal DIR or --journal-memory SIZE"},
    FlagNeed{"--journal-save", saves_journal, "a journal in memory", "add --journal-memory SIZE"},
    FlagNeed{"--prefix-caching-hash-algo", caches_prefixes, "prefix caching", kCachePrefixes},
    FlagNeed{"--prefix-caching-hash-seed", caches_prefixes, "prefix caching", kCachePrefixes},
    FlagNeed{"--curve-blocks", [](const Served& served) { return served.engine.curve_blocks == 0 || caches_prefixes(served); },
             "prefix caching", kCachePrefixes},
    FlagNeed{"--limit-mm-per-prompt", supports_images, "a model that supports images", kServeImageModel},
    FlagNeed{"--max-pixels", supports_images, "a model that supports images", kServeImageModel},
    FlagNeed{"--enable-mm-embeds", supports_images, "a model that supports images", kServeImageModel},
    FlagNeed{"--allowed-media-domains", supports_images, "a model that supports images", kServeImageModel},
    FlagNeed{"--max-media-bytes", fetches, "image fetching", "add --allowed-media-domains, and serve a model that supports images"},
    FlagNeed{"--media-timeout-ms", fetches, "image fetching", "add --allowed-media-domains, and serve a model that supports images"},
    FlagNeed{"--max-audio-seconds", supports_audio, "a model that supports audio", kServeAudioModel},
    FlagNeed{"--max-audio-bytes-in-flight", supports_audio, "a model that supports audio", kServeAudioModel},
    FlagNeed{"--max-sound-seconds", supports_audio, "a model that supports audio", kServeAudioModel},  // old name of --max-audio-seconds
    FlagNeed{"--max-sound-bytes-in-flight", supports_audio, "a model that supports audio", kServeAudioModel},
    FlagNeed{"--tenant-secret", has_tenants, "tenants", "add --tenant-keys-file"},
    FlagNeed{"--max-tenant-waiting", has_tenants, "tenants", "add --tenant-keys-file"},
    FlagNeed{"--hidden-states-budget", [](const Served& served) { return !served.server.hidden_states_folder.empty(); },
             "a folder for hidden states", "add --hidden-states DIR"},
    FlagNeed{"--otlp-service-name", [](const Served& served) { return !served.server.otlp_traces_endpoint.empty(); }, "a trace collector",
             "add --otlp-traces-endpoint URL"},
};

}  // namespace

std::span<const FlagNeed> flag_needs() {
  return kNeeds;
}

std::vector<Error> flags_without_effect(const CLI::App& command, const ServedFeatures& served) {
  std::vector<Error> idle;
  for (const FlagNeed& need : kNeeds) {
    const CLI::Option* const option = command.get_option_no_throw(std::string(need.flag));
    if (option == nullptr || option->count() == 0 || need.is_met(served)) continue;
    idle.push_back({ErrorCode::invalid_argument, std::string(need.flag), fmt::format("has no effect without {}", need.missing),
                    std::string(need.remedy)});
  }
  return idle;
}

}  // namespace quire
