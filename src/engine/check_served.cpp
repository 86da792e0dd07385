#include "engine/check_served.h"

#include <fmt/format.h>

namespace quire {

Result<void> check_served(const CoreConfig& config, const WorkerCapabilities& worker) {
  const auto refuse = [](const char* field, std::string message) { return fail(ErrorCode::unsupported, field, std::move(message)); };
  if (config.kv.groups.size() > worker.num_cache_groups)
    return refuse("kv", fmt::format("{} cache groups, and the worker has tables for {}", config.kv.groups.size(), worker.num_cache_groups));
  if (config.speculation.num_spec_tokens > worker.num_spec_tokens) {
    return refuse("speculation.num_spec_tokens", fmt::format("{} drafts per step, and the worker verifies {}",
                                                             config.speculation.num_spec_tokens, worker.num_spec_tokens));
  }
  if (config.encoder.max_encoder_tokens > 0 && !worker.encoder_inputs)
    return refuse("encoder.max_encoder_tokens", "the worker runs no encoder");
  if (config.encoder.is_encoder_decoder && !worker.encoder_inputs)
    return refuse("encoder.is_encoder_decoder", "the worker runs no encoder");
  if (config.parallel.pipeline_parallel && !worker.pipeline)
    return refuse("parallel.pipeline_parallel", "the worker is no stage of a pipeline");
  if (config.parallel.dcp_world_size > 1 && !worker.context_parallel)
    return refuse("parallel.dcp_world_size", "the worker has no ranks beside it");
  if (config.parallel.pcp_world_size > 1 && !worker.context_parallel)
    return refuse("parallel.pcp_world_size", "the worker has no ranks beside it");
  if (config.swap.swap_choice != SwapChoice::off && !worker.transfers)
    return refuse("swap.swap_choice", "the worker was made without a transport");
  return {};
}

Result<void> check_served(const EngineRequest& request, const WorkerCapabilities& worker) {
  const auto refuse = [](const char* field, const char* message) { return fail(ErrorCode::unsupported, field, message, "leave it out"); };
  if (request.structured_output && !(worker.token_masks && has_structured_output())) {
    return fail(ErrorCode::unsupported, "structured_output", "is not possible: this build of quire has no llguidance",
                "build with it (QUIRE_GUIDANCE, as ./dev does), or ask for free output");
  }
  if (!request.pictures.empty() && !worker.encoder_inputs) return refuse("pictures", "are not seen by this engine's worker");
  if (request.pooling && !worker.pooling) return refuse("pooling", "is not done by this engine's worker");
  if (request.sampling.prompt_logprobs && !worker.prompt_logprobs)
    return refuse("prompt_logprobs", "are not given by this engine's worker");
  if (request.sampling.routed_experts && !worker.routed_experts) return refuse("routed_experts", "is given, and the model has no experts");
  return {};
}

Result<void> check_seams(const EngineSeams& seams, const CoreConfig& config, const WorkerCapabilities& worker) {
  if (seams.connector != nullptr && seams.transport == nullptr) {
    return fail(ErrorCode::invalid_argument, "transport", "is missing, and nothing else carries out what the connector plans",
                "give a transport with the connector");
  }
  if (seams.transport != nullptr && seams.connector == nullptr) {
    return fail(ErrorCode::invalid_argument, "connector", "is missing, and nobody else plans what the transport is to do",
                "give a connector with the transport");
  }
  if (seams.encoder_connector != nullptr && !worker.encoder_inputs)
    return fail(ErrorCode::unsupported, "encoder_connector", "the worker runs no encoder", "leave it out");
  if (seams.connector == nullptr) return {};
  if (!worker.transfers) return fail(ErrorCode::unsupported, "transport", "the worker was made without it");
  if (config.encoder.is_encoder_decoder)
    return fail(ErrorCode::unsupported, "connector", "what the model's encoder has made is neither stored nor loaded",
                "do without a tier or connector");
  if (config.kv.has_mamba_layers() && !seams.connector->supports_states())
    return fail(ErrorCode::unsupported, "connector",
                "layers of the model have states, and one of the connectors knows none (supports_states)",
                "use another model, or OffloadingConnector, --kv-disk or --kv-dram, which know them");
  const bool is_plain = config.kv.groups.size() == 1 && is_full_attention(config.kv.groups[0].spec);
  if (!is_plain && !seams.connector->supports_groups())
    return fail(ErrorCode::unsupported, "connector",
                "the model has sliding windows, and one of the connectors knows none (supports_groups)",
                "use a model without windows, or OffloadingConnector, --kv-disk or --kv-dram, which know them");
  return {};
}

}  // namespace quire
