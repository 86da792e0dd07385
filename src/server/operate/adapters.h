#pragma once
// Loads and unloads LoRA adapters while the server runs, as vLLM's POST /v1/load_lora_adapter and /v1/unload_lora_adapter do, with the same
// fields and answers. The job pool reads the files.
#include "server/api/serving.h"
#include "server/http/http.h"
#include "server/http/reply.h"

namespace quire {

// Loads an adapter. The body is {"lora_name", "lora_path"}, and "load_inplace": true to replace an adapter of the same name.
Reply load_adapter(Serving& serving, HttpRequest& request, const Wake& wake);
// Unloads an adapter. The body is {"lora_name"}.
Reply unload_adapter(Serving& serving, HttpRequest& request, const Wake& wake);

}  // namespace quire
