// quire inspect: shows the properties of a model, and how many tokens fit into a given amount of memory. Reads only the headers of the
// model's files.
#include <fmt/format.h>

#include <algorithm>

#include "base/format_bytes.h"
#include "base/usable_memory.h"
#include "cli/command.h"
#include "cli/find_model.h"
#include "cli/flags/engine_flags.h"
#include "cli/flags/option_flags.h"
#include "cli/kv_lines.h"
#include "quire/engine.h"
#include "quire/engine_option_table.h"

namespace quire {

namespace {

struct InspectFlags {
  std::string model, mmproj;
  std::uint32_t tokens = 2048;
  EngineOptions engine;
};

void print_held(const ModelInfo& model) {
  const char* title = "held as";
  for (const WeightFormatSummary& held : model.held) {
    fmt::print("{:<16} {}: {} matri{}, {}, multiplied in {}\n", title, held.form, held.count, held.count == 1 ? "x" : "ces",
               format_bytes(held.bytes), held.multiplies_integers ? "integers (fast)" : "floats (slower)");
    title = "";
  }
  for (const std::string& note : model.notes) fmt::print("{:<16} {}\n", "note", note);
}

void print_model(const ModelInfo& model) {
  fmt::print("model            {}\n", model.name);
  fmt::print("architecture     {}: {} layers, hidden {}, {} heads ({} for keys and values) of {}, vocabulary {}\n", model.architecture,
             model.num_layers, model.hidden_size, model.num_heads, model.num_kv_heads, model.head_dim, model.vocab_size);
  fmt::print("parameters       {:.1f} million", static_cast<double>(model.num_parameters) / 1e6);
  if (model.num_experts > 0) {
    fmt::print(", of which a token uses {:.1f} million ({} of {} experts)", static_cast<double>(model.num_active_parameters) / 1e6,
               model.experts_per_token, model.num_experts);
  }
  fmt::print("\n");
  fmt::print("weights          {} in memory, from {}\n", format_bytes(model.weight_bytes), model.weight_types);
  if (!model.quantisation.empty()) fmt::print("quantized        {}\n", model.quantisation);
  print_held(model);
  fmt::print("context          {} tokens\n", model.context_length);
  fmt::print("chat template    {}\n", model.tokenizer->chat_template.empty() ? "none: /v1/chat/completions rejects requests" : "yes");
}

Result<void> print_cache(const ModelInfo& model, const InspectFlags& flags) {
  const Result<KvLayout> layout = plan_kv_layout(model, flags.engine);
  if (!layout) return std::unexpected(layout.error());
  const std::uint64_t usable = layout->num_blocks - 1;
  const std::uint32_t tokens = std::min(flags.tokens, model.context_length);
  std::uint64_t per_request = kv_blocks_per_request(*layout, tokens, flags.engine.scheduler.max_num_batched_tokens);
  for (const KvGroupLayout& group : layout->groups)
    if (group.keeps_encoder_output()) per_request += (model.encoder.num_positions + group.block_size - 1) / group.block_size;
  const std::uint64_t memory = flags.engine.cache.kv_cache_bytes;
  fmt::print("\nKV cache         {}\n", describe_kv_cost(*layout));
  for (const std::string& line : describe_kv_groups(*layout)) fmt::print("                 {}\n", line);
  fmt::print("in {:<13} {} blocks = {} tokens (one more block is the null block)\n", format_bytes(memory), usable,
             num_cacheable_tokens(*layout, usable));
  fmt::print("requests         up to {} at the same time, of {} tokens each (prompt and output); more if they share a prefix\n",
             usable / per_request, tokens);
  const std::uint64_t resident = model.weight_bytes + std::min(memory, UINT64_MAX - model.weight_bytes);
  fmt::print("resident         about {} with this cache\n", format_bytes(resident));
  if (const std::uint64_t total = total_memory_bytes(); total > 0 && resident > total)
    fmt::print("does not fit     this machine or its cgroup has {} of memory: quire serve --kv-cache-memory {} would be rejected\n",
               format_bytes(total), format_bytes(memory));
  return {};
}

}  // namespace

Command add_inspect_command(CLI::App& app) {
  CLI::App* command = app.add_subcommand("inspect", "Show the properties of a model, and how many requests fit into the memory");
  auto flags = std::make_shared<InspectFlags>();
  command->add_option("model", flags->model, "GGUF file, Hugging Face folder, or model of the hub: ORG/REPO or ORG/REPO:QUANT")
      ->required()
      ->type_name("MODEL");
  command->add_option("--mmproj", flags->mmproj, "GGUF file of the image encoder that belongs to a GGUF model")->type_name("FILE");
  command
      ->add_option_function<std::string>(
          "--memory",
          [flags](const std::string& text) {
            const Result<std::uint64_t> bytes = parse_bytes(text);
            if (!bytes.has_value()) throw CLI::ValidationError("--memory", bytes.error().to_string());
            flags->engine.cache.kv_cache_bytes = *bytes;
          },
          "Size of the KV cache: 512MiB, 2GiB, ... (default 1GiB)")
      ->type_name("SIZE");
  command->add_option("--tokens", flags->tokens, "Length of a request, prompt plus output, in tokens")
      ->capture_default_str()
      ->check(CLI::PositiveNumber);
  const auto dtype = std::ranges::find(kCacheOptions, "--kv-cache-dtype", [](const auto& option) { return option.info.flag; });
  add_option_flag(*command, dtype->info, dtype->value(flags->engine.cache));
  command->add_option("--block-size", flags->engine.cache.block_size, "Number of tokens in a KV cache block")
      ->capture_default_str()
      ->check(CLI::Range(1, 1024));
  command->footer("Example: quire inspect model.gguf --memory 4GiB --tokens 8192");
  return {command, [flags]() -> Result<int> {
            const auto found = find_model(flags->model);
            if (!found) return std::unexpected(found.error());
            const auto mmproj = flags->mmproj.empty() ? Result<FoundModel>(FoundModel{}) : find_model(flags->mmproj, "--mmproj");
            if (!mmproj) return std::unexpected(mmproj.error());
            Result<ModelInfo> model = inspect_model(found->path, mmproj->path);
            if (!model.has_value()) return std::unexpected(model.error());
            if (!found->name.empty()) model->name = found->name;
            print_model(*model);
            if (auto printed = print_cache(*model, *flags); !printed) return std::unexpected(printed.error());
            return 0;
          }};
}

}  // namespace quire
