#include "engine/check_served.h"

#include <fmt/format.h>

namespace quire {

Result<void> check_served(const CoreConfig& config, const WorkerCapabilities& worker) {
  const auto refuse = [](const char* field, std::string message) { return fail(ErrorCode::unsupported, field, std::move(message)); };
  if (config.kv.groups.size() > worker.num_cache_groups)
    return refuse("kv",
                  fmt::format("has {} cache groups, but the worker supports at most {}", config.kv.groups.size(), worker.num_cache_groups));
  if (config.speculation.num_spec_tokens > worker.num_spec_tokens) {
    return refuse("speculation.num_spec_tokens", fmt::format("is {}, but the worker verifies at most {} draft tokens per step",
                                                             config.speculation.num_spec_tokens, worker.num_spec_tokens));
  }
  if (config.encoder.max_encoder_tokens > 0 && !worker.encoder_inputs)
    return refuse("encoder.max_encoder_tokens", "the worker does not run an encoder");
  if (config.encoder.is_encoder_decoder && !worker.encoder_inputs)
    return refuse("encoder.is_encoder_decoder", "the worker does not run an encoder");
  if (config.parallel.pipeline_parallel && !worker.pipeline)
    return refuse("parallel.pipeline_parallel", "the worker does not support pipeline parallelism");
  if (config.parallel.dcp_world_size > 1 && !worker.context_parallel)
    return refuse("parallel.dcp_world_size", "the worker does not support context parallelism");
  if (config.parallel.pcp_world_size > 1 && !worker.context_parallel)
    return refuse("parallel.pcp_world_size", "the worker does not support context parallelism");
  if (config.swap.swap_choice != SwapChoice::off && !worker.transfers) return refuse("swap.swap_choice", "the worker has no transport");
  return {};
}

Result<void> check_served(const EngineRequest& request, const WorkerCapabilities& worker) {
  const auto refuse = [](const char* field, const char* message) { return fail(ErrorCode::unsupported, field, message, "leave it out"); };
  if (request.structured_output && !(worker.token_masks && has_structured_output())) {
    return fail(ErrorCode::unsupported, "structured_output", "is not available: this build of quire does not include llguidance",
                "build with QUIRE_GUIDANCE (./dev does), or leave structured output out");
  }
  if (!request.pictures.empty() && !worker.encoder_inputs) return refuse("pictures", "are not supported by this engine's worker");
  if (request.pooling && !worker.pooling) return refuse("pooling", "is not supported by this engine's worker");
  if (request.sampling.prompt_logprobs && !worker.prompt_logprobs)
    return refuse("prompt_logprobs", "are not supported by this engine's worker");
  if (request.sampling.routed_experts && !worker.routed_experts) return refuse("routed_experts", "is set, but the model has no experts");
  return {};
}

Result<void> check_seams(const EngineSeams& seams, const CoreConfig& config, const WorkerCapabilities& worker) {
  if (seams.connector != nullptr && seams.transport == nullptr) {
    return fail(ErrorCode::invalid_argument, "transport", "is missing, but the connector needs one to transfer blocks",
                "pass a transport with the connector");
  }
  if (seams.transport != nullptr && seams.connector == nullptr) {
    return fail(ErrorCode::invalid_argument, "connector", "is missing, but the transport needs one to plan transfers",
                "pass a connector with the transport");
  }
  if (seams.encoder_connector != nullptr && !worker.encoder_inputs)
    return fail(ErrorCode::unsupported, "encoder_connector", "the worker does not run an encoder", "leave it out");
  if (seams.connector == nullptr) return {};
  if (!worker.transfers)
    return fail(ErrorCode::unsupported, "transport", "the worker was created without a transport",
                "create the worker with this transport, or leave the connector out");
  if (config.encoder.is_encoder_decoder)
    return fail(ErrorCode::unsupported, "connector", "the encoder outputs of an encoder-decoder model cannot be stored or loaded",
                "serve this model without a tier or connector");
  if (config.kv.has_mamba_layers() && !seams.connector->supports_states())
    return fail(ErrorCode::unsupported, "connector",
                "the model has layers with states, but one of the connectors does not support states (supports_states)",
                "use another model, or OffloadingConnector, --kv-disk or --kv-dram, which support states");
  const bool is_plain = config.kv.groups.size() == 1 && is_full_attention(config.kv.groups[0].spec);
  if (!is_plain && !seams.connector->supports_groups())
    return fail(ErrorCode::unsupported, "connector",
                "the model has sliding windows, but one of the connectors does not support them (supports_groups)",
                "use a model without sliding windows, or OffloadingConnector, --kv-disk or --kv-dram, which support them");
  return {};
}

}  // namespace quire
