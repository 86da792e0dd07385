// The table of request fields. Sources: the parameter types of the openai and anthropic packages (tools/request_fields.py compares them
// with this table), the request classes of vLLM 0.19 and SGLang, and the documentation of llama.cpp's server, Ollama, OpenRouter, LiteLLM,
// Mistral, DeepSeek, Groq, Fireworks and the samplers that chat front ends send. Called where bodies are read, on any thread.
#include "server/request/request_fields.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <boost/json/parse.hpp>
#include <boost/json/serialize.hpp>
#include <utility>

#include "server/request/object_reader.h"

namespace quire {

namespace json = boost::json;

namespace {

constexpr std::string_view kSendForm =
    "send structured_outputs, response_format, text.format (/v1/responses) or output_config.format (/v1/messages)";
constexpr std::string_view kSendLength = "send max_tokens, or max_output_tokens in /v1/responses";
constexpr std::string_view kSendTurns = "put it into a message";
constexpr std::string_view kSendChoice = "send min_p, top_p or top_k instead";

// Columns: completions, chats, responses, messages.
constexpr auto kFields = std::to_array<RequestField>({
    // The prompt.
    {"model", "rrpp"},
    {"prompt", "rxxx", "", "send messages, or input in /v1/responses"},
    {"messages", "xrxr", "", "send prompt, or input in /v1/responses"},
    {"input", "xxrx", "", "send messages, or prompt in /v1/completions"},
    {"inputs", "xxxx", "", "send prompt, messages or input"},
    {"parameters", "xxxx", "", "send its fields at the top level of the request"},
    {"instructions", "xxrx", "", "send a system message, or system in /v1/messages"},
    {"system", "xxxr", "", "send a system message, or instructions in /v1/responses"},
    {"system_prompt", "xxxx", "", "send a system message"},
    {"system_message", "xxxx", "", "send a system message"},
    {"personality", "iiii"},
    {"suffix", "rxxx", "", "use /v1/completions"},
    {"echo", "rxxx", "false", "use /v1/completions"},
    {"session", "rxxx", "false", "use /v1/completions"},
    {"documents", "xxxx", "", kSendTurns},
    {"citations", "iiii"},
    {"input_ids", "xxxx", "", "send token ids as prompt to /v1/completions"},
    {"prompt_embeds", "xxxx", "", "send text or token ids as prompt"},
    {"input_prefix", "xxxx", "", "send prompt and suffix to /v1/completions"},
    {"input_suffix", "xxxx", "", "send prompt and suffix to /v1/completions"},
    {"input_extra", "xxxx", "", "send prompt and suffix to /v1/completions"},
    {"multimodal_data", "xxxx", "", "send image parts of messages"},
    {"images", "xxxx", "", "send image parts of messages"},
    {"context", "xxxx", "", "send the conversation as messages"},
    {"raw", "xxxx", "false", "use /v1/completions"},
    {"template", "xxxx", "", "start the server with --chat-template"},
    {"chat_template", "xxxx", "", "start the server with --chat-template; chat_template_kwargs are passed to it"},
    {"chat_template_kwargs", "irpp"},
    {"add_generation_prompt", "irpp"},
    {"continue_final_message", "irpp"},
    {"add_special_tokens", "rrpp"},
    {"truncate_prompt_tokens", "rrxp", "", "send truncation"},
    {"truncation", "xxrx", R"("disabled")", "send truncate_prompt_tokens"},
    {"truncation_side", "xxxx", R"("left")", "leave it out: the last tokens are kept"},
    {"prompt_truncate_len", "xxxx", "", "send truncate_prompt_tokens"},
    {"context_length_exceeded_behavior", "xxxx", R"("error")", "send truncate_prompt_tokens"},
    {"previous_response_id", "xxrx", "", "send the conversation as messages"},
    {"previous_response", "xxxx", "", "send previous_response_id, or the conversation"},
    {"previous_input_messages", "xxxx", "", "send previous_response_id, or the conversation"},
    {"conversation", "xxxx", "", "send previous_response_id to /v1/responses"},
    {"thread", "xxxx", "", "send the conversation as messages"},
    {"context_management", "iiir"},
    {"compaction", "iiii"},
    {"mm_processor_kwargs", "xxxx"},
    {"media_io_kwargs", "xxxx"},
    {"data_sources", "xxxx", "", kSendTurns},
    {"safe_prompt", "xxxx", "false", "send a system message"},
    {"task", "xxxx", "", kSendTurns},

    // Number and length of answers.
    {"max_tokens", "rrxr", "", "send max_output_tokens"},
    {"max_completion_tokens", "arxx", "", kSendLength, "max_tokens"},
    {"max_output_tokens", "aarp", "", "", "max_tokens"},
    {"max_new_tokens", "aapp", "", "", "max_tokens"},
    {"n_predict", "aapp", "-1,-2", "", "max_tokens"},
    {"num_predict", "aapp", "-1,-2", "", "max_tokens"},
    {"max_length", "xxxx", "", kSendLength},
    {"t_max_predict_ms", "xxxx", "0,-1", kSendLength},
    {"n_indent", "xxxx", "0"},
    {"min_tokens", "rrpp"},
    {"min_new_tokens", "aapp", "0", "", "min_tokens"},
    {"min_length", "xxxx", "0", "send min_tokens"},
    {"n", "rrxx", "1", "use /v1/chat/completions"},
    {"n_cmpl", "aaxx", "1", "use /v1/chat/completions", "n"},
    {"best_of", "rxxx", "1", "use /v1/completions, or n"},
    {"ignore_eos", "rrpp"},
    {"ban_eos_token", "aapp", "", "", "ignore_eos"},

    // Stop conditions.
    {"stop", "rrpx", "", "send stop_sequences"},
    {"stop_sequences", "aapr", "", "", "stop"},
    {"stop_token_ids", "rrpp"},
    {"stop_regex", "xxxx", "", "send stop"},
    {"include_stop_str_in_output", "rrpp"},
    {"no_stop_trim", "aapp", "", "", "include_stop_str_in_output"},
    {"repetition_detection", "rrpp"},

    // Sampling.
    {"temperature", "rrpp"},
    {"top_p", "rrpp"},
    {"top_k", "rrpp"},
    {"min_p", "rrpp"},
    {"seed", "rrpp"},
    {"random_seed", "aapp", "", "", "seed"},
    {"sampling_seed", "aapp", "", "", "seed"},
    {"repetition_penalty", "rrpp"},
    {"presence_penalty", "rrpp"},
    {"frequency_penalty", "rrpp"},
    {"logit_bias", "rrpp"},
    {"bad_words", "rrpp"},
    {"allowed_token_ids", "rrpp"},
    {"use_beam_search", "rrxx", "false", "use /v1/chat/completions"},
    {"length_penalty", "rrxx", "1", "use it with use_beam_search in /v1/chat/completions"},
    {"early_stopping", "xxxx", "false", "leave it out: a beam search ends when no better result is possible"},
    {"num_beams", "xxxx", "1", "send use_beam_search and n to /v1/chat/completions"},
    {"do_sample", "xxxx", "true", "send temperature 0 for greedy sampling"},
    {"typical_p", "xxxx", "1", kSendChoice},
    {"typical", "xxxx", "1", kSendChoice},
    {"top_a", "xxxx", "0", kSendChoice},
    {"tfs", "xxxx", "1", kSendChoice},
    {"tfs_z", "xxxx", "1", kSendChoice},
    {"top_n_sigma", "xxxx", "-1,0", kSendChoice},
    {"nsigma", "xxxx", "-1,0", kSendChoice},
    {"epsilon_cutoff", "xxxx", "0", kSendChoice},
    {"eta_cutoff", "xxxx", "0", kSendChoice},
    {"min_keep", "xxxx", "0,1", kSendChoice},
    {"mirostat", "xxxx", "0", "send temperature and top_p"},
    {"mirostat_mode", "xxxx", "0", "send temperature and top_p"},
    {"mirostat_tau", "iiii"},
    {"mirostat_eta", "iiii"},
    {"adaptive_target", "xxxx", "-1", "send temperature and top_p"},
    {"adaptive_decay", "iiii"},
    {"dynatemp", "xxxx", "false", "send temperature"},
    {"dynamic_temperature", "xxxx", "false", "send temperature"},
    {"dynatemp_range", "xxxx", "0", "send temperature"},
    {"dynatemp_low", "iiii"},
    {"dynatemp_high", "iiii"},
    {"dynatemp_exponent", "iiii"},
    {"smoothing_factor", "xxxx", "0", "send temperature"},
    {"smoothing_curve", "iiii"},
    {"temperature_last", "xxxx", "false", "send temperature and top_p"},
    {"samplers", "xxxx", "", "leave it out: the order of samplers is fixed"},
    {"sampler_order", "xxxx", "", "leave it out: the order of samplers is fixed"},
    {"sampler_priority", "xxxx", "", "leave it out: the order of samplers is fixed"},
    {"xtc_probability", "xxxx", "0", kSendChoice},
    {"xtc_threshold", "iiii"},
    {"dry_multiplier", "xxxx", "0", "send repetition_penalty or frequency_penalty"},
    {"dry_base", "iiii"},
    {"dry_allowed_length", "iiii"},
    {"dry_penalty_last_n", "iiii"},
    {"dry_range", "iiii"},
    {"dry_sequence_breakers", "iiii"},
    {"repeat_penalty", "xxxx", "1", "send repetition_penalty, which counts the whole text"},
    {"rep_pen", "xxxx", "1", "send repetition_penalty"},
    {"repeat_last_n", "iiii"},
    {"rep_pen_range", "iiii"},
    {"repetition_penalty_range", "iiii"},
    {"no_repeat_ngram_size", "xxxx", "0", "send repetition_detection or frequency_penalty"},
    {"encoder_repetition_penalty", "xxxx", "1", "send repetition_penalty"},
    {"penalty_alpha", "xxxx", "0", kSendChoice},
    {"guidance_scale", "xxxx", "1"},
    {"negative_prompt", "xxxx"},
    {"custom_token_bans", "xxxx", "", "send logit_bias or bad_words"},
    {"banned_tokens", "xxxx", "", "send bad_words"},
    {"banned_strings", "xxxx", "", "send bad_words"},
    {"logits_processors", "xxxx", "", "send logit_bias"},
    {"custom_logit_processor", "xxxx", "", "send logit_bias"},
    {"custom_params", "iiii"},
    {"watermarking", "xxxx", "false"},
    {"options", "xxxx", "", "send its fields at the top level of the request"},

    // The form of the answer.
    {"response_format", "rrxx", R"({"type":"text"})", "send text.format, or output_config.format in /v1/messages"},
    {"structured_outputs", "rrpp"},
    {"guided_json", "rrpp"},
    {"guided_json_object", "rrpp"},
    {"guided_regex", "rrpp"},
    {"guided_choice", "rrpp"},
    {"guided_grammar", "rrpp"},
    {"guided_whitespace_pattern", "rrpp"},
    {"guided_decoding_backend", "iiii"},
    {"json_schema", "rrpp"},
    {"json_mode", "rrpp"},
    {"grammar", "rrpp"},
    {"grammar_lazy", "xxxx", "false"},
    {"grammar_triggers", "iiii"},
    {"preserved_tokens", "iiii"},
    {"regex", "rrpp"},
    {"ebnf", "rrpp"},
    {"format", "rrpp"},
    {"output_format", "xxxr", "", kSendForm},
    {"output_config", "xxxr", "", kSendForm},
    {"output_schema", "xxxx", "", kSendForm},
    {"response_schema", "xxxx", "", kSendForm},
    {"response_mime_type", "xxxx", R"("text/plain")", kSendForm},
    {"schema", "xxxx", "", kSendForm},
    {"choice", "xxxx", "", "send structured_outputs.choice"},
    {"structural_tag", "xxxx", "", "send structured_outputs.structural_tag"},
    {"text", "xxrx", "", "use /v1/responses"},
    {"verbosity", "iiii"},
    {"modalities", "xxxx", R"(["text"])", "leave it out: this server generates text only"},
    {"audio", "xxxx", "", "leave it out: this server generates text only"},
    {"image", "xxxx", "", "leave it out: this server generates text only"},
    {"skip_special_tokens", "rrpp"},
    {"spaces_between_special_tokens", "xxxx", "true"},
    {"detokenize", "xxxx", "true", "send return_token_ids"},
    {"prediction", "iiii"},

    // Tools.
    {"tools", "xrrr", "", "use /v1/chat/completions"},
    {"tool_choice", "xrrr", R"("none","auto")", "use /v1/chat/completions"},
    {"parallel_tool_calls", "irpx", "true", "send tool_choice.disable_parallel_tool_use"},
    {"parse_tool_calls", "xxxx", "true", "leave tools out to get the unparsed text"},
    {"functions", "xxxx", "", "send tools"},
    {"function_call", "xxxx", R"("none","auto")", "send tool_choice"},
    {"max_tool_calls", "iiii"},
    {"web_search_options", "iiii"},
    {"enable_search", "xxxx", "false", "send a tool for search"},
    {"mcp_servers", "iiii"},
    {"plugins", "iiii"},
    {"container", "iiii"},
    {"disable_tool_validation", "iiii"},

    // Thinking.
    {"reasoning_effort", "irxx", "", "send reasoning.effort, or output_config.effort in /v1/messages"},
    {"reasoning", "irrx", "", "send thinking and output_config.effort"},
    {"include_reasoning", "irpp"},
    {"enable_thinking", "irpp"},
    {"think", "irpp"},
    {"thinking", "irpr"},
    {"thinking_budget", "xxxx", "-1", kSendLength},
    {"thinking_token_budget", "xxxx", "-1", kSendLength},
    {"thinking_budget_tokens", "xxxx", "-1", kSendLength},
    {"reasoning_budget", "xxxx", "-1", kSendLength},
    {"reasoning_format", "xxxx", R"("auto","deepseek","parsed")", "leave it out: reasoning is returned as reasoning_content"},
    {"reasoning_split", "iiii"},
    {"separate_reasoning", "xxxx", "true", "leave it out: reasoning is returned as reasoning_content"},
    {"stream_reasoning", "iiii"},
    {"prompt_mode", "xxxx", R"("reasoning")", "send reasoning_effort"},

    // Fields that choose what is reported about the answer.
    {"stream", "rrpp"},
    {"stream_options", "rrii"},
    {"stream_interval", "iiii"},
    {"incremental_output", "iiii"},
    {"result_format", "iiii"},
    {"logprobs", "rrxx", "false,0", R"(send "include": ["message.output_text.logprobs"] to /v1/responses; /v1/messages has none)"},
    {"top_logprobs", "xrrx", "0", "send logprobs, which is a number in /v1/completions; /v1/messages has none"},
    {"prompt_logprobs", "rrxx", "", "use /v1/chat/completions"},
    {"logprob_token_ids", "xxxx", "", "send logprobs"},
    {"n_probs", "xxxx", "0", "send logprobs"},
    {"include", "iiri"},
    {"return_token_ids", "rrii"},
    {"return_tokens_as_token_ids", "rrii"},
    {"return_routed_experts", "rrii"},
    {"routed_experts_prompt_start", "rrii"},
    {"routed_experts_start_len", "iiii"},
    {"return_tokens", "iiii"},
    {"return_progress", "iiii"},
    {"return_prompt_text", "iiii"},
    {"return_prompt_token_ids", "iiii"},
    {"return_token_offsets", "iiii"},
    {"return_mm_kwargs", "iiii"},
    {"return_meta_info", "iiii"},
    {"return_hidden_states", "xxxx", "false", R"(send "kv_transfer_params": {"hidden_states": true} to /v1/completions)"},
    {"return_cached_tokens_details", "iiii"},
    {"enable_response_messages", "iiii"},
    {"timings_per_token", "iiii"},
    {"perf_metrics_in_response", "iiii"},
    {"post_sampling_probs", "iiii"},
    {"response_fields", "iiii"},
    {"raw_output", "iiii"},
    {"usage", "iiii"},
    {"debug", "iiii"},
    {"sse_ping_interval", "iiii"},
    {"diagnostics", "iiir"},

    // Fields that identify the user, and choose when the request runs.
    {"user", "iiii"},
    {"user_id", "iiii"},
    {"user_profile_id", "iiii"},
    {"workspace_id", "iiii"},
    {"safety_identifier", "iiii"},
    {"metadata", "iirr"},
    {"client_metadata", "iiii"},
    {"request_id", "iiii"},
    {"rid", "iiii"},
    {"session_id", "iiii"},
    {"session_params", "iiii"},
    {"custom_labels", "iiii"},
    {"tenant", "rrpp"},
    {"priority", "rrpp"},
    {"job_id", "rrpp"},
    {"is_last_step", "rrpp"},
    {"tool", "rrpp"},
    {"hints", "rrpp"},
    {"vllm_xargs", "rrpp"},
    {"service_tier", "rrpi"},
    {"speed", "iiii"},
    {"inference_geo", "iiii"},
    {"background", "xxxx", "false", "wait for the answer, or stream it"},
    {"store", "iiri"},
    {"moderation", "iiii"},
    {"guardrails", "iiii"},
    {"access_programs", "iiii"},
    {"betas", "iiii"},
    {"anthropic_beta", "iiii"},
    {"anthropic_version", "iiii"},
    {"billing_policy", "iiii"},
    {"fallbacks", "iiii"},
    {"fallback_credit_token", "iiii"},
    {"models", "iiii"},
    {"route", "iiii"},
    {"provider", "iiii"},
    {"transforms", "iiii"},
    {"api_key", "iiii"},
    {"api_base", "iiii"},
    {"timeout", "iiii"},
    {"num_retries", "iiii"},
    {"drop_params", "iiii"},

    // Caches and placement.
    {"cache_salt", "rrpp"},
    {"prompt_cache_key", "rrpp"},
    {"prompt_cache_options", "iiri"},
    {"prompt_cache_retention", "iiii"},
    {"prompt_cache_isolation_key", "iiii"},
    {"cache_control", "iiii"},
    {"cache_prompt", "iiii"},
    {"n_cache_reuse", "iiii"},
    {"n_keep", "iiii"},
    {"id_slot", "iiii"},
    {"num_ctx", "iiii"},
    {"keep_alive", "iiii"},
    {"extra_key", "iiii"},
    {"fail_if_not_cached", "rrxx", "false", "use /v1/chat/completions"},
    {"kv_transfer_params", "rrii"},
    {"ec_transfer_params", "iiii"},
    {"bootstrap_host", "iiii"},
    {"bootstrap_port", "iiii"},
    {"bootstrap_room", "iiii"},
    {"routed_dp_rank", "iiii"},
    {"disagg_prefill_dp_rank", "iiii"},
    {"data_parallel_rank", "iiii"},
    {"ngram_corpus_id", "iiii"},
    {"speculation", "iiii"},
    {"backend_sampling", "iiii"},
    {"images_config", "iiii"},
    {"max_dynamic_patch", "iiii"},
    {"min_dynamic_patch", "iiii"},
    {"use_audio_in_video", "iiii"},
    {"lora", "xxxx", "", "send the name of the adapter as model"},
    {"lora_path", "xxxx", "", "send the name of the adapter as model"},
});

constexpr auto kByName = [] {
  auto rows = kFields;
  std::ranges::sort(rows, {}, &RequestField::name);
  return rows;
}();
static_assert(std::ranges::adjacent_find(kByName, {}, &RequestField::name) == kByName.end(), "each field has one row");
static_assert(std::ranges::all_of(kFields, [](const RequestField& field) {
  return field.uses.size() == 4 && field.uses.find_first_not_of("rpaix") == std::string_view::npos &&
         (field.uses.find('a') != std::string_view::npos) == !field.other.empty();
}));

json::array neutral_values(const RequestField& field) {
  return std::move(json::parse(fmt::format("[{}]", field.neutral)).as_array());
}

}  // namespace

FieldUse RequestField::use(FieldApi api) const {
  switch (uses[static_cast<std::size_t>(api)]) {
    case 'r':
      return FieldUse::read;
    case 'p':
      return FieldUse::passed;
    case 'a':
      return FieldUse::renamed;
    case 'i':
      return FieldUse::ignored;
    default:
      return FieldUse::refused;
  }
}

bool RequestField::is_neutral(const json::value& value) const {
  if (value.is_null() || (value.is_string() && value.get_string().empty())) return true;
  if ((value.is_array() && value.get_array().empty()) || (value.is_object() && value.get_object().empty())) return true;
  const json::array values = neutral_values(*this);
  return std::any_of(values.begin(), values.end(), [&](const json::value& each) { return same_value(each, value); });
}

std::span<const RequestField> request_fields() {
  return kFields;
}

const RequestField* find_request_field(std::string_view name) {
  const auto* const found = std::ranges::lower_bound(kByName, name, {}, &RequestField::name);
  return found != kByName.end() && found->name == name ? &*found : nullptr;
}

Error refused_field(const RequestField& field, const json::value& value) {
  std::string remedy(field.remedy.empty() ? std::string_view("leave it out") : field.remedy);
  if (!field.neutral.empty()) remedy += fmt::format("; {} is accepted and has no effect", json::serialize(neutral_values(field).front()));
  return {ErrorCode::unsupported, std::string(field.name), fmt::format("is {}, which this endpoint does not support", describe(value)),
          std::move(remedy)};
}

std::vector<std::string_view> fields_read_by(FieldApi api) {
  std::vector<std::string_view> names;
  for (const RequestField& field : kFields)
    if (const FieldUse use = field.use(api); use != FieldUse::ignored && use != FieldUse::refused) names.push_back(field.name);
  return names;
}

}  // namespace quire
