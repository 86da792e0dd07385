#pragma once
// Loads and unloads LoRA adapters while the server runs: vLLM's POST /v1/load_lora_adapter and /v1/unload_lora_adapter, with vLLM's fields
// and answers. The job pool reads the files.
#include "server/api/serving.h"
#include "server/http/http.h"
#include "server/http/reply.h"

namespace quire {

// The body has {"lora_name", "lora_path"}, and "load_inplace": true to replace a known adapter.
Reply load_adapter(Serving& serving, HttpRequest& request, const Wake& wake);
// The body has {"lora_name"}.
Reply unload_adapter(Serving& serving, HttpRequest& request, const Wake& wake);

}  // namespace quire
