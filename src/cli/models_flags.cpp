#include "cli/models_flags.h"

#include "cli/flags/engine_flags.h"
#include "cli/flags/option_flags.h"

namespace quire {

void add_models_flags(CLI::App& app, ModelsFlags& flags) {
  app.add_option(
         "--models", flags.path,
         "Serve several models, each in a process that is started when a request needs it: a YAML file that lists them, or a folder "
         "in which each GGUF file or folder is a model; docs/tasks/several_models.md")
      ->type_name("FILE|DIR");
  CLI::Option* const models = app.get_option("--models");
  app.add_option("--models-max-loaded", flags.limits.max_loaded, "Maximum number of loaded models of --models (default 0: no limit)")
      ->type_name("UINT")
      ->needs(models);
  app.add_option(
         "--models-memory", flags.limits.memory_bytes,
         "Memory for all loaded models of --models together: their weights, KV caches, host memory tiers and swap (default auto: nine "
         "tenths of the memory that is free at start)")
      ->transform(bytes_flag())
      ->needs(models);
  app.add_option("--models-idle-seconds", flags.limits.idle_s,
                 "Unload a model of --models that had no request for this time, in seconds (default 0: only when its memory is needed)")
      ->type_name("UINT")
      ->needs(models);
  app.add_option("--models-wait-seconds", flags.limits.wait_s,
                 "Maximum time for which a request waits until its model of --models is loaded, in seconds (default 600)")
      ->type_name("UINT")
      ->needs(models);
  app.add_option("--models-max-waiting", flags.limits.max_waiting,
                 "Maximum number of requests that wait for one model of --models; further ones get status 429 (default 256)")
      ->type_name("UINT")
      ->needs(models);
  group_flags(app, OptionGroup::server);
  // Set by `quire serve --models` for its processes, and not shown in --help.
  app.add_option("--supervised", flags.supervisor)->group("");
}

}  // namespace quire
