#include "server/operate/adapters.h"

#include <fmt/format.h>

#include <algorithm>
#include <memory>
#include <string>
#include <utility>

#include "server/http/error_response.h"
#include "server/request/object_reader.h"
#include "server/request/served_model.h"

namespace quire {

namespace {

// Limited because adapter names appear in every list of models and in metrics.
constexpr std::size_t kMaxNameBytes = 256;

struct AdapterCall {
  std::string name, path;
  bool replace = false;
};

Result<AdapterCall> parse_call(const std::string& body, bool has_path) {
  auto object = parse_object(body);
  if (!object) return std::unexpected(std::move(object.error()));
  ObjectReader reader(*object);
  AdapterCall call{.name = reader.text("lora_name"), .path = has_path ? reader.text("lora_path") : std::string()};
  if (has_path) call.replace = reader.boolean("load_inplace", false);
  // Ignores fields of vLLM that have no effect here: a number for the adapter, the name of the base model, and whether weights are 3D.
  for (const char* const field : {"lora_int_id", "base_model_name", "is_3d_lora_weight"}) (void)reader.find(field);
  if (auto read = reader.finish(); !read) return std::unexpected(std::move(read.error()));
  if (has_path && (call.name.empty() || call.path.empty()))
    return fail(ErrorCode::invalid_argument, call.name.empty() ? "lora_name" : "lora_path",
                "Both 'lora_name' and 'lora_path' must be provided", "send both");
  if (call.name.empty()) return fail(ErrorCode::invalid_argument, "lora_name", "is missing", "send the name of the LoRA adapter to unload");
  if (call.name.size() > kMaxNameBytes)
    return fail(ErrorCode::invalid_argument, "lora_name", fmt::format("has {} bytes", call.name.size()),
                fmt::format("use at most {} bytes", kMaxNameBytes));
  return call;
}

Reply changed(const std::string& name, const char* how) {
  return {HttpResponse{200, "text/plain; charset=utf-8", fmt::format("Success: LoRA adapter '{}' {} successfully.", name, how), {}}};
}

// Returns the reply to an error. A corrupt folder is status 400, because the client chose the folder.
Reply refused(const Serving& serving, Error error) {
  if (error.field == "adapter") error.field = "lora_name";
  return error.code == ErrorCode::corrupt ? Reply{error_response(400, error)} : serving.refuse(error);
}

// Runs `change` in the disk lane of the job pool, because it reads files or waits for calls that read files.
Reply change_adapters(Serving& serving, HttpRequest& request, const Wake& wake, bool has_path, const char* how,
                      Result<void> (*change)(Engine& engine, const AdapterCall& call)) {
  if (!serving.options().allow_runtime_lora_updating) {
    return {error_response(403, {ErrorCode::invalid_argument, "", "this server does not change adapters at run time",
                                 "start the server with --allow-runtime-lora-updating, or list the adapters in --lora-modules"})};
  }
  const auto call = parse_call(request.body, has_path);
  if (!call) return serving.refuse(call.error());
  if (has_path && std::ranges::find(serving.model().names(), call->name) != serving.model().names().end()) {
    return serving.refuse({ErrorCode::invalid_argument, "lora_name", fmt::format("'{}' is the name of the model", call->name),
                           "choose another name for the adapter"});
  }
  auto done = std::make_shared<Result<void>>();
  auto work = [engine = &serving.engine().engine(), call = *call, change, done] { *done = change(*engine, call); };
  auto reply = [&serving, name = call->name, how, done] { return *done ? changed(name, how) : refused(serving, done->error()); };
  return serving.run_disk_job(request.id, wake, "adapters", std::move(work), std::move(reply));
}

}  // namespace

Reply load_adapter(Serving& serving, HttpRequest& request, const Wake& wake) {
  return change_adapters(serving, request, wake, true, "added", [](Engine& engine, const AdapterCall& call) -> Result<void> {
    auto loaded = engine.load_adapter(call.name, call.path, call.replace);
    if (!loaded) return std::unexpected(std::move(loaded.error()));
    return {};
  });
}

Reply unload_adapter(Serving& serving, HttpRequest& request, const Wake& wake) {
  return change_adapters(serving, request, wake, false, "removed",
                         [](Engine& engine, const AdapterCall& call) { return engine.unload_adapter(call.name); });
}

}  // namespace quire
