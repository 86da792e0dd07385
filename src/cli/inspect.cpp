// quire inspect: what a model is, and what fits into how much memory. Reads the header only.
#include <fmt/format.h>

#include <algorithm>

#include "cli/command.h"
#include "cli/engine_flags.h"
#include "quire/engine.h"

namespace quire {

namespace {

struct InspectFlags {
  std::string model;
  std::uint64_t memory_bytes = std::uint64_t{1} << 30;
  std::uint32_t tokens = 2048;
  CacheOptions cache;
};

void print_model(const ModelInfo& model) {
  fmt::print("model            {}\n", model.name);
  fmt::print("architecture     {}: {} layers, hidden {}, {} heads ({} for keys and values) of {}, vocabulary {}\n", model.architecture,
             model.num_layers, model.hidden_size, model.num_heads, model.num_kv_heads, model.head_dim, model.vocab_size);
  fmt::print("parameters       {:.1f} million\n", static_cast<double>(model.num_parameters) / 1e6);
  fmt::print("weights          {} in memory, from {}\n", format_bytes(model.weight_bytes), model.weight_types);
  fmt::print("context          {} tokens\n", model.context_length);
  fmt::print("chat template    {}\n", model.tokenizer->chat_template.empty() ? "none: /v1/chat/completions will refuse" : "yes");
}

void print_cache(const ModelInfo& model, const InspectFlags& flags) {
  const std::uint64_t block_bytes = kv_block_bytes(model, flags.cache);
  const std::uint64_t num_blocks = flags.memory_bytes / block_bytes;
  const std::uint64_t usable = num_blocks > 0 ? num_blocks - 1 : 0;
  const std::uint64_t blocks_per_request = (flags.tokens + flags.cache.block_size - 1) / flags.cache.block_size;
  fmt::print("\nKV cache         {} per token, {} per block of {} tokens ({})\n", format_bytes(block_bytes / flags.cache.block_size),
             format_bytes(block_bytes), flags.cache.block_size, flags.cache.dtype == KvDtype::bf16 ? "bf16" : "f32");
  fmt::print("in {:<13} {} blocks = {} tokens (one more block is the null block)\n", format_bytes(flags.memory_bytes), usable,
             usable * flags.cache.block_size);
  fmt::print("requests at once {} of {} tokens each, prompt and output; more where they share a prefix\n", usable / blocks_per_request,
             flags.tokens);
  fmt::print("resident         about {} with this cache\n", format_bytes(model.weight_bytes + flags.memory_bytes));
}

}  // namespace

Command add_inspect_command(CLI::App& app) {
  CLI::App* command = app.add_subcommand("inspect", "What a model is, and how many requests fit into how much memory");
  auto flags = std::make_shared<InspectFlags>();
  command->add_option("model", flags->model, "A GGUF file or a Hugging Face folder")->required()->type_name("MODEL");
  command
      ->add_option_function<std::string>(
          "--memory",
          [flags](const std::string& text) {
            const Result<std::uint64_t> bytes = parse_bytes(text);
            if (!bytes.has_value()) throw CLI::ValidationError("--memory", bytes.error().to_string());
            flags->memory_bytes = *bytes;
          },
          "Memory for the KV cache: 512MiB, 2GiB, ... (default 1GiB)")
      ->type_name("SIZE");
  command->add_option("--tokens", flags->tokens, "Length of a request, prompt and output")
      ->capture_default_str()
      ->check(CLI::PositiveNumber);
  command->add_option("--block-size", flags->cache.block_size, "Tokens per block")->capture_default_str()->check(CLI::Range(1, 4096));
  command->footer("Example: quire inspect model.gguf --memory 4GiB --tokens 8192");
  return {command, [flags]() -> Result<int> {
            const Result<ModelInfo> model = inspect_model(flags->model);
            if (!model.has_value()) return std::unexpected(model.error());
            print_model(*model);
            print_cache(*model, *flags);
            return 0;
          }};
}

}  // namespace quire
