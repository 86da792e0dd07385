// quire pull: downloads a model. Runs on the main thread. Prints the path to stdout, and everything else to stderr.
#include <fmt/format.h>

#include <cstdio>
#include <memory>
#include <string>

#include "cli/command.h"
#include "cli/find_model.h"

namespace quire {

Command add_pull_command(CLI::App& app) {
  CLI::App* command = app.add_subcommand("pull", "Download a model from the Hugging Face hub or a URL");
  auto name = std::make_shared<std::string>();
  command
      ->add_option("model", *name,
                   "ORG/REPO, ORG/REPO:QUANT (a quantization of a GGUF repository, or the name of one of its files), or the URL of a file")
      ->required()
      ->type_name("MODEL");
  command->footer(
      "Examples:\n"
      "  quire pull bartowski/SmolLM2-135M-Instruct-GGUF            Q4_K_M, or the nearest quantization\n"
      "  quire pull bartowski/SmolLM2-135M-Instruct-GGUF:Q8_0\n"
      "  quire pull Qwen/Qwen3-0.6B                                 safetensors, config and tokenizer\n"
      "  quire pull https://example.org/model.gguf#sha256=DIGEST\n\n"
      "Other commands download a model that they do not find: quire serve ORG/REPO:QUANT.\n"
      "A download that was interrupted continues with the next call.\n\n"
      "Environment: HF_TOKEN (for private and gated repositories), HF_HUB_CACHE or HF_HOME (where models are stored), HF_ENDPOINT\n"
      "(another hub), HF_HUB_OFFLINE=1 (no network).");
  return {command, [name]() -> Result<int> {
            const auto model = pull_named(*name);
            if (!model) return std::unexpected(model.error());
            fmt::print("{}\n", model->path.string());
            return 0;
          }};
}

}  // namespace quire
