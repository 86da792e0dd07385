#pragma once
// LoRA adapters that come and go while the server runs: vLLM's POST /v1/load_lora_adapter and /v1/unload_lora_adapter, with its fields and
// answers. Files are read in the job pool.
#include "server/api/serving.h"
#include "server/http/http.h"
#include "server/http/reply.h"

namespace quire {

// {"lora_name", "lora_path"}, and "load_inplace": true to replace one that is known.
Reply load_adapter(Serving& serving, HttpRequest& request, const Wake& wake);
// {"lora_name"}
Reply unload_adapter(Serving& serving, HttpRequest& request, const Wake& wake);

}  // namespace quire
