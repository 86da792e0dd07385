// quire recommend: prints models that fit into this machine's memory. Runs on the main thread, without a network.
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <ranges>

#include "base/format_bytes.h"
#include "base/usable_memory.h"
#include "cli/command.h"
#include "cli/recommended_models.h"
#include "quire/base/options.h"

namespace quire {
namespace {

constexpr std::size_t kMaxModels = 5;

// In ascending order of file size. Larger models than 14 billion parameters are mixtures of experts, which are fast for their size on a
// CPU.
constexpr auto kModels = std::to_array<RecommendedModel>({
    {"SmolLM2 135M Instruct", "bartowski/SmolLM2-135M-Instruct-GGUF:Q4_K_M", 105'454'432, false},
    {"Qwen3 0.6B", "Qwen/Qwen3-0.6B-GGUF:Q8_0", 639'446'688, true},
    {"Qwen3 1.7B", "unsloth/Qwen3-1.7B-GGUF:Q4_K_M", 1'107'409'472, true},
    {"Qwen3 4B Instruct 2507", "unsloth/Qwen3-4B-Instruct-2507-GGUF:Q4_K_M", 2'497'281'120, true},
    {"Qwen3 8B", "Qwen/Qwen3-8B-GGUF:Q4_K_M", 5'030'000'000, true},
    {"Qwen3 14B", "Qwen/Qwen3-14B-GGUF:Q4_K_M", 9'000'000'000, true},
    {"gpt-oss 20B, 3.6B per token", "ggml-org/gpt-oss-20b-GGUF:MXFP4", 12'109'566'624, true},
    {"Qwen3 30B Instruct 2507, 3.3B per token", "unsloth/Qwen3-30B-A3B-Instruct-2507-GGUF:Q4_K_M", 18'560'000'000, true},
    {"gpt-oss 120B, 5.1B per token", "ggml-org/gpt-oss-120b-GGUF:MXFP4", 63'387'346'208, true},
});

}  // namespace

std::uint64_t RecommendedModel::memory_bytes() const {
  constexpr std::uint64_t kPackedPercent = 105;
  return file_bytes / 100 * kPackedPercent + CacheOptions{}.kv_cache_bytes;
}

std::vector<RecommendedModel> models_that_fit(std::uint64_t memory_bytes, std::size_t max_models) {
  std::vector<RecommendedModel> models;
  for (const RecommendedModel& model : kModels | std::views::reverse)
    if (model.memory_bytes() <= memory_bytes / 5 * 4 && models.size() < max_models) models.push_back(model);
  return models;
}

Command add_recommend_command(CLI::App& app) {
  CLI::App* command = app.add_subcommand("recommend", "Print public models that fit into this machine's memory");
  command->footer(
      "FILE is the size of the download. MEMORY includes the default KV cache (--kv-cache-memory). TOOLS: the model calls tools.");
  return {command, []() -> Result<int> {
            const std::uint64_t memory = total_memory_bytes();
            const auto models = models_that_fit(memory, kMaxModels);
            if (models.empty())
              return fail(ErrorCode::unsupported, "", fmt::format("no recommended model fits into {} of memory", format_bytes(memory)),
                          "lower the cache with --kv-cache-memory 256MiB and use bartowski/SmolLM2-135M-Instruct-GGUF");
            fmt::print("Models for {} of memory, the largest first:\n\n", format_bytes(memory));
            std::size_t width = 0;
            for (const RecommendedModel& model : models) width = std::max(width, model.title.size());
            fmt::print("{:<{}}  {:>10}  {:>10}  {:<5}  {}\n", "MODEL", width, "FILE", "MEMORY", "TOOLS", "COMMAND");
            for (const RecommendedModel& model : models)
              fmt::print("{:<{}}  {:>10}  {:>10}  {:<5}  quire serve {}\n", model.title, width, format_bytes(model.file_bytes),
                         format_bytes(model.memory_bytes()), model.calls_tools ? "yes" : "no", model.name);
            return 0;
          }};
}

}  // namespace quire
