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

// Columns: completions, chats, responses, messages, Ollama's chats, Ollama's generate.
constexpr auto kFields = std::to_array<RequestField>({
    // The prompt.
    {"model", "rrpprr"},
    {"prompt", "rxxxxr", "", "send messages, or input in /v1/responses"},
    {"messages", "xrxrrx", "", "send prompt, or input in /v1/responses"},
    {"input", "xxrxxx", "", "send messages, or prompt in /v1/completions"},
    {"inputs", "xxxxxx", "", "send prompt, messages or input"},
    {"parameters", "xxxxxx", "", "send its fields at the top level of the request"},
    {"instructions", "xxrxxx", "", "send a system message, or system in /v1/messages"},
    {"system", "xxxrxr", "", "send a system message, or instructions in /v1/responses"},
    {"system_prompt", "xxxxxx", "", "send a system message"},
    {"system_message", "xxxxxx", "", "send a system message"},
    {"personality", "iiiiii"},
    {"suffix", "rxxxxr", "", "use /v1/completions or /api/generate"},
    {"echo", "rxxxxx", "false", "use /v1/completions"},
    {"session", "rxxxxx", "false", "use /v1/completions"},
    {"documents", "xxxxxx", "", kSendTurns},
    {"citations", "iiiiii"},
    {"input_ids", "xxxxxx", "", "send token ids as prompt to /v1/completions"},
    {"prompt_embeds", "xxxxxx", "", "send text or token ids as prompt"},
    {"input_prefix", "xxxxxx", "", "send prompt and suffix to /v1/completions"},
    {"input_suffix", "xxxxxx", "", "send prompt and suffix to /v1/completions"},
    {"input_extra", "xxxxxx", "", "send prompt and suffix to /v1/completions"},
    {"multimodal_data", "xxxxxx", "", "send image parts of messages"},
    {"images", "xxxxxr", "", "send the images in messages"},
    {"context", "xxxxxx", "", "send the conversation as messages"},
    {"raw", "xxxxxr", "false", "use /v1/completions or /api/generate"},
    {"template", "xxxxxx", "", "start the server with --chat-template"},
    {"chat_template", "xxxxxx", "", "start the server with --chat-template; chat_template_kwargs are passed to it"},
    {"chat_template_kwargs", "irpppp"},
    {"add_generation_prompt", "irpppp"},
    {"continue_final_message", "irpppp"},
    {"add_special_tokens", "rrpppp"},
    {"truncate_prompt_tokens", "rrxppp", "", "send truncation"},
    {"truncation", "xxrxxx", R"("disabled")", "send truncate_prompt_tokens"},
    {"truncation_side", "xxxxxx", R"("left")", "leave it out: the last tokens are kept"},
    {"prompt_truncate_len", "xxxxxx", "", "send truncate_prompt_tokens"},
    {"context_length_exceeded_behavior", "xxxxxx", R"("error")", "send truncate_prompt_tokens"},
    {"previous_response_id", "xxrxxx", "", "send the conversation as messages"},
    {"previous_response", "xxxxxx", "", "send previous_response_id, or the conversation"},
    {"previous_input_messages", "xxxxxx", "", "send previous_response_id, or the conversation"},
    {"conversation", "xxxxxx", "", "send previous_response_id to /v1/responses"},
    {"thread", "xxxxxx", "", "send the conversation as messages"},
    {"context_management", "iiirii"},
    {"compaction", "iiiiii"},
    {"mm_processor_kwargs", "xxxxxx"},
    {"media_io_kwargs", "xxxxxx"},
    {"data_sources", "xxxxxx", "", kSendTurns},
    {"safe_prompt", "xxxxxx", "false", "send a system message"},
    {"task", "xxxxxx", "", kSendTurns},

    // Number and length of answers.
    {"max_tokens", "rrxrpp", "", "send max_output_tokens"},
    {"max_completion_tokens", "arxxxx", "", kSendLength, "max_tokens"},
    {"max_output_tokens", "aarppp", "", "", "max_tokens"},
    {"max_new_tokens", "aapppp", "", "", "max_tokens"},
    {"n_predict", "aapppp", "-1,-2", "", "max_tokens"},
    {"num_predict", "aapppp", "-1,-2", "", "max_tokens"},
    {"max_length", "xxxxxx", "", kSendLength},
    {"t_max_predict_ms", "xxxxxx", "0,-1", kSendLength},
    {"n_indent", "xxxxxx", "0"},
    {"min_tokens", "rrpppp"},
    {"min_new_tokens", "aapppp", "0", "", "min_tokens"},
    {"min_length", "xxxxxx", "0", "send min_tokens"},
    {"n", "rrxxxx", "1", "use /v1/chat/completions"},
    {"n_cmpl", "aaxxxx", "1", "use /v1/chat/completions", "n"},
    {"best_of", "rxxxxx", "1", "use /v1/completions, or n"},
    {"ignore_eos", "rrpppp"},
    {"ban_eos_token", "aapppp", "", "", "ignore_eos"},

    // Stop conditions.
    {"stop", "rrpxpp", "", "send stop_sequences"},
    {"stop_sequences", "aaprpp", "", "", "stop"},
    {"stop_token_ids", "rrpppp"},
    {"stop_regex", "xxxxxx", "", "send stop"},
    {"include_stop_str_in_output", "rrpppp"},
    {"no_stop_trim", "aapppp", "", "", "include_stop_str_in_output"},
    {"repetition_detection", "rrpppp"},

    // Sampling.
    {"temperature", "rrpppp"},
    {"top_p", "rrpppp"},
    {"top_k", "rrpppp"},
    {"min_p", "rrpppp"},
    {"seed", "rrpprr"},
    {"random_seed", "aapppp", "", "", "seed"},
    {"sampling_seed", "aapppp", "", "", "seed"},
    {"repetition_penalty", "rrpppp"},
    {"presence_penalty", "rrpppp"},
    {"frequency_penalty", "rrpppp"},
    {"logit_bias", "rrpppp"},
    {"bad_words", "rrpppp"},
    {"allowed_token_ids", "rrpppp"},
    {"use_beam_search", "rrxxxx", "false", "use /v1/chat/completions"},
    {"length_penalty", "rrxxxx", "1", "use it with use_beam_search in /v1/chat/completions"},
    {"early_stopping", "xxxxxx", "false", "leave it out: a beam search ends when no better result is possible"},
    {"num_beams", "xxxxxx", "1", "send use_beam_search and n to /v1/chat/completions"},
    {"do_sample", "xxxxxx", "true", "send temperature 0 for greedy sampling"},
    {"typical_p", "xxxxxx", "1", kSendChoice},
    {"typical", "xxxxxx", "1", kSendChoice},
    {"top_a", "xxxxxx", "0", kSendChoice},
    {"tfs", "xxxxxx", "1", kSendChoice},
    {"tfs_z", "xxxxxx", "1", kSendChoice},
    {"top_n_sigma", "xxxxxx", "-1,0", kSendChoice},
    {"nsigma", "xxxxxx", "-1,0", kSendChoice},
    {"epsilon_cutoff", "xxxxxx", "0", kSendChoice},
    {"eta_cutoff", "xxxxxx", "0", kSendChoice},
    {"min_keep", "xxxxxx", "0,1", kSendChoice},
    {"mirostat", "xxxxxx", "0", "send temperature and top_p"},
    {"mirostat_mode", "xxxxxx", "0", "send temperature and top_p"},
    {"mirostat_tau", "iiiiii"},
    {"mirostat_eta", "iiiiii"},
    {"adaptive_target", "xxxxxx", "-1", "send temperature and top_p"},
    {"adaptive_decay", "iiiiii"},
    {"dynatemp", "xxxxxx", "false", "send temperature"},
    {"dynamic_temperature", "xxxxxx", "false", "send temperature"},
    {"dynatemp_range", "xxxxxx", "0", "send temperature"},
    {"dynatemp_low", "iiiiii"},
    {"dynatemp_high", "iiiiii"},
    {"dynatemp_exponent", "iiiiii"},
    {"smoothing_factor", "xxxxxx", "0", "send temperature"},
    {"smoothing_curve", "iiiiii"},
    {"temperature_last", "xxxxxx", "false", "send temperature and top_p"},
    {"samplers", "xxxxxx", "", "leave it out: the order of samplers is fixed"},
    {"sampler_order", "xxxxxx", "", "leave it out: the order of samplers is fixed"},
    {"sampler_priority", "xxxxxx", "", "leave it out: the order of samplers is fixed"},
    {"xtc_probability", "xxxxxx", "0", kSendChoice},
    {"xtc_threshold", "iiiiii"},
    {"dry_multiplier", "xxxxxx", "0", "send repetition_penalty or frequency_penalty"},
    {"dry_base", "iiiiii"},
    {"dry_allowed_length", "iiiiii"},
    {"dry_penalty_last_n", "iiiiii"},
    {"dry_range", "iiiiii"},
    {"dry_sequence_breakers", "iiiiii"},
    {"repeat_penalty", "xxxxrr", "1", "send repetition_penalty, which counts the whole text"},
    {"rep_pen", "xxxxxx", "1", "send repetition_penalty"},
    {"repeat_last_n", "iiiirr"},
    {"penalize_newline", "xxxxxx", "true", "leave it out: penalties count line feeds too"},
    {"rep_pen_range", "iiiiii"},
    {"repetition_penalty_range", "iiiiii"},
    {"no_repeat_ngram_size", "xxxxxx", "0", "send repetition_detection or frequency_penalty"},
    {"encoder_repetition_penalty", "xxxxxx", "1", "send repetition_penalty"},
    {"penalty_alpha", "xxxxxx", "0", kSendChoice},
    {"guidance_scale", "xxxxxx", "1"},
    {"negative_prompt", "xxxxxx"},
    {"custom_token_bans", "xxxxxx", "", "send logit_bias or bad_words"},
    {"banned_tokens", "xxxxxx", "", "send bad_words"},
    {"banned_strings", "xxxxxx", "", "send bad_words"},
    {"logits_processors", "xxxxxx", "", "send logit_bias"},
    {"custom_logit_processor", "xxxxxx", "", "send logit_bias"},
    {"custom_params", "iiiiii"},
    {"watermarking", "xxxxxx", "false"},
    {"options", "xxxxrr", "", "send its fields at the top level of the request"},

    // The form of the answer.
    {"response_format", "rrxxpp", R"({"type":"text"})", "send text.format, or output_config.format in /v1/messages"},
    {"structured_outputs", "rrpppp"},
    {"guided_json", "rrpppp"},
    {"guided_json_object", "rrpppp"},
    {"guided_regex", "rrpppp"},
    {"guided_choice", "rrpppp"},
    {"guided_grammar", "rrpppp"},
    {"guided_whitespace_pattern", "rrpppp"},
    {"guided_decoding_backend", "iiiiii"},
    {"json_schema", "rrpppp"},
    {"json_mode", "rrpppp"},
    {"grammar", "rrpppp"},
    {"grammar_lazy", "xxxxxx", "false"},
    {"grammar_triggers", "iiiiii"},
    {"preserved_tokens", "iiiiii"},
    {"regex", "rrpppp"},
    {"ebnf", "rrpppp"},
    {"format", "rrpprr"},
    {"output_format", "xxxrxx", "", kSendForm},
    {"output_config", "xxxrxx", "", kSendForm},
    {"output_schema", "xxxxxx", "", kSendForm},
    {"response_schema", "xxxxxx", "", kSendForm},
    {"response_mime_type", "xxxxxx", R"("text/plain")", kSendForm},
    {"schema", "xxxxxx", "", kSendForm},
    {"choice", "xxxxxx", "", "send structured_outputs.choice"},
    {"structural_tag", "xxxxxx", "", "send structured_outputs.structural_tag"},
    {"text", "xxrxxx", "", "use /v1/responses"},
    {"verbosity", "iiiiii"},
    {"modalities", "xxxxxx", R"(["text"])", "leave it out: this server generates text only"},
    {"audio", "xxxxxx", "", "leave it out: this server generates text only"},
    {"image", "xxxxxx", "", "leave it out: this server generates text only"},
    {"skip_special_tokens", "rrpppp"},
    {"spaces_between_special_tokens", "xxxxxx", "true"},
    {"detokenize", "xxxxxx", "true", "send return_token_ids"},
    {"prediction", "iiiiii"},
    {"width", "iiiixx", "", "leave it out: this server generates text only"},
    {"height", "iiiixx", "", "leave it out: this server generates text only"},
    {"steps", "iiiixx", "", "leave it out: this server generates text only"},

    // Tools.
    {"tools", "xrrrpx", "", "use /v1/chat/completions or /api/chat"},
    {"tool_choice", "xrrrpx", R"("none","auto")", "use /v1/chat/completions or /api/chat"},
    {"parallel_tool_calls", "irpxpi", "true", "send tool_choice.disable_parallel_tool_use"},
    {"parse_tool_calls", "xxxxxx", "true", "leave tools out to get the unparsed text"},
    {"functions", "xxxxxx", "", "send tools"},
    {"function_call", "xxxxxx", R"("none","auto")", "send tool_choice"},
    {"max_tool_calls", "iiiiii"},
    {"web_search_options", "iiiiii"},
    {"enable_search", "xxxxxx", "false", "send a tool for search"},
    {"mcp_servers", "iiiiii"},
    {"plugins", "iiiiii"},
    {"container", "iiiiii"},
    {"disable_tool_validation", "iiiiii"},

    // Thinking.
    {"reasoning_effort", "irxxpp", "", "send reasoning.effort, or output_config.effort in /v1/messages"},
    {"reasoning", "irrxpp", "", "send thinking and output_config.effort"},
    {"include_reasoning", "irpppp"},
    {"enable_thinking", "irpppp"},
    {"think", "irpprr"},
    {"thinking", "irprpp"},
    {"thinking_budget", "xxxxxx", "-1", kSendLength},
    {"thinking_token_budget", "xxxxxx", "-1", kSendLength},
    {"thinking_budget_tokens", "xxxxxx", "-1", kSendLength},
    {"reasoning_budget", "xxxxxx", "-1", kSendLength},
    {"reasoning_format", "xxxxxx", R"("auto","deepseek","parsed")", "leave it out: reasoning is returned as reasoning_content"},
    {"reasoning_split", "iiiiii"},
    {"separate_reasoning", "xxxxxx", "true", "leave it out: reasoning is returned as reasoning_content"},
    {"stream_reasoning", "iiiiii"},
    {"prompt_mode", "xxxxxx", R"("reasoning")", "send reasoning_effort"},

    // Fields that choose what is reported about the answer.
    {"stream", "rrpprr"},
    {"stream_options", "rriiii"},
    {"stream_interval", "iiiiii"},
    {"incremental_output", "iiiiii"},
    {"result_format", "iiiiii"},
    {"logprobs", "rrxxpr", "false,0", R"(send "include": ["message.output_text.logprobs"] to /v1/responses; /v1/messages has none)"},
    {"top_logprobs", "xrrxpr", "0", "send logprobs, which is a number in /v1/completions; /v1/messages has none"},
    {"prompt_logprobs", "rrxxxx", "", "use /v1/chat/completions"},
    {"logprob_token_ids", "xxxxxx", "", "send logprobs"},
    {"n_probs", "xxxxxx", "0", "send logprobs"},
    {"include", "iiriii"},
    {"return_token_ids", "rriiii"},
    {"return_tokens_as_token_ids", "rriiii"},
    {"return_routed_experts", "rriiii"},
    {"routed_experts_prompt_start", "rriiii"},
    {"routed_experts_start_len", "iiiiii"},
    {"return_tokens", "iiiiii"},
    {"return_progress", "iiiiii"},
    {"return_prompt_text", "iiiiii"},
    {"return_prompt_token_ids", "iiiiii"},
    {"return_token_offsets", "iiiiii"},
    {"return_mm_kwargs", "iiiiii"},
    {"return_meta_info", "iiiiii"},
    {"return_hidden_states", "xxxxxx", "false", R"(send "kv_transfer_params": {"hidden_states": true} to /v1/completions)"},
    {"return_cached_tokens_details", "iiiiii"},
    {"enable_response_messages", "iiiiii"},
    {"timings_per_token", "iiiiii"},
    {"perf_metrics_in_response", "iiiiii"},
    {"post_sampling_probs", "iiiiii"},
    {"response_fields", "iiiiii"},
    {"raw_output", "iiiiii"},
    {"usage", "iiiiii"},
    {"debug", "iiiiii"},
    {"sse_ping_interval", "iiiiii"},
    {"diagnostics", "iiirii"},

    // Fields that identify the user, and choose when the request runs.
    {"user", "iiiiii"},
    {"user_id", "iiiiii"},
    {"user_profile_id", "iiiiii"},
    {"workspace_id", "iiiiii"},
    {"safety_identifier", "iiiiii"},
    {"metadata", "iirrii"},
    {"client_metadata", "iiiiii"},
    {"request_id", "iiiiii"},
    {"rid", "iiiiii"},
    {"session_id", "iiiiii"},
    {"session_params", "iiiiii"},
    {"custom_labels", "iiiiii"},
    {"tenant", "rrpppp"},
    {"priority", "rrpppp"},
    {"job_id", "rrpppp"},
    {"is_last_step", "rrpppp"},
    {"tool", "rrpppp"},
    {"hints", "rrpppp"},
    {"vllm_xargs", "rrpppp"},
    {"service_tier", "rrpiii"},
    {"speed", "iiiiii"},
    {"inference_geo", "iiiiii"},
    {"background", "xxxxxx", "false", "wait for the answer, or stream it"},
    {"store", "iiriii"},
    {"moderation", "iiiiii"},
    {"guardrails", "iiiiii"},
    {"access_programs", "iiiiii"},
    {"betas", "iiiiii"},
    {"anthropic_beta", "iiiiii"},
    {"anthropic_version", "iiiiii"},
    {"billing_policy", "iiiiii"},
    {"fallbacks", "iiiiii"},
    {"fallback_credit_token", "iiiiii"},
    {"models", "iiiiii"},
    {"route", "iiiiii"},
    {"provider", "iiiiii"},
    {"transforms", "iiiiii"},
    {"api_key", "iiiiii"},
    {"api_base", "iiiiii"},
    {"timeout", "iiiiii"},
    {"num_retries", "iiiiii"},
    {"drop_params", "iiiiii"},

    // Caches and placement.
    {"cache_salt", "rrpppp"},
    {"prompt_cache_key", "rrpppp"},
    {"prompt_cache_options", "iiriii"},
    {"prompt_cache_retention", "rrprii"},
    {"prompt_cache_isolation_key", "iiiiii"},
    {"cache_control", "rrprii"},
    {"cache_prompt", "iiiiii"},
    {"n_cache_reuse", "iiiiii"},
    {"n_keep", "iiiiii"},
    {"id_slot", "iiiiii"},
    {"num_ctx", "iiiirr"},
    {"num_keep", "iiiiii"},
    {"num_batch", "iiiiii"},
    {"num_thread", "iiiiii"},
    {"num_gpu", "iiiiii"},
    {"main_gpu", "iiiiii"},
    {"low_vram", "iiiiii"},
    {"numa", "iiiiii"},
    {"f16_kv", "iiiiii"},
    {"logits_all", "iiiiii"},
    {"vocab_only", "iiiiii"},
    {"embedding_only", "iiiiii"},
    {"use_mmap", "iiiiii"},
    {"use_mlock", "iiiiii"},
    {"shift", "iiiiii"},
    {"truncate", "iiiiii"},
    {"keep_alive", "iiiirr"},
    {"extra_key", "iiiiii"},
    {"fail_if_not_cached", "rrxxxx", "false", "use /v1/chat/completions"},
    {"kv_transfer_params", "rriiii"},
    {"ec_transfer_params", "iiiiii"},
    {"bootstrap_host", "iiiiii"},
    {"bootstrap_port", "iiiiii"},
    {"bootstrap_room", "iiiiii"},
    {"routed_dp_rank", "iiiiii"},
    {"disagg_prefill_dp_rank", "iiiiii"},
    {"data_parallel_rank", "iiiiii"},
    {"ngram_corpus_id", "iiiiii"},
    {"speculation", "iiiiii"},
    {"backend_sampling", "iiiiii"},
    {"images_config", "iiiiii"},
    {"max_dynamic_patch", "iiiiii"},
    {"min_dynamic_patch", "iiiiii"},
    {"use_audio_in_video", "iiiiii"},
    {"lora", "xxxxxx", "", "send the name of the adapter as model"},
    {"lora_path", "xxxxxx", "", "send the name of the adapter as model"},
});

constexpr auto kByName = [] {
  auto rows = kFields;
  std::ranges::sort(rows, {}, &RequestField::name);
  return rows;
}();
static_assert(std::ranges::adjacent_find(kByName, {}, &RequestField::name) == kByName.end(), "each field has one row");
static_assert(std::ranges::all_of(kFields, [](const RequestField& field) {
  return field.uses.size() == kNumFieldApis && field.uses.find_first_not_of("rpaix") == std::string_view::npos &&
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
