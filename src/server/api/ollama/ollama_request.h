#pragma once
// Translates the bodies of Ollama's /api/chat and /api/generate into the equivalent chat or completion.
#include <boost/json/object.hpp>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "quire/base/error.h"
#include "server/request/completion_request.h"
#include "server/request/object_reader.h"
#include "server/request/request_fields.h"

namespace quire {

// The properties of the model that decide how a body is translated.
struct OllamaModel {
  bool has_template = true;  // false: a prompt without a system message is sent to the model as it is
  bool supports_images = true;
  bool thinks = true;        // false: a request to think is refused
  bool reads_effort = true;  // false: a level of thinking only turns thinking on
  std::int64_t context = 0;  // tokens; a larger num_ctx is refused. 0: not checked
};

struct OllamaCall {
  std::string model;  // as the client sent it
  Api api = Api::chat;
  // Must be read like a body of /v1/chat/completions or, if `api` is completion, of /v1/completions. Does not name the model.
  boost::json::object body;
  // The names of the fields in the client's options.
  std::vector<std::string> option_names{};
  bool is_load = false;    // the body has no prompt: the client wants the model to be loaded, or unloaded
  bool is_unload = false;  // keep_alive is 0
};

// Consumes `body`. Appends to `ignored` the names of fields that do not change the answer. Errors name the fields that the client sent.
// `api` is ollama_chat or ollama_generate.
[[nodiscard]] Result<OllamaCall> call_of_ollama(boost::json::object body, FieldApi api, const OllamaModel& model,
                                                std::vector<std::string>& ignored);

// Converts an error of the translated body: renames its fields to the names that the client sent.
[[nodiscard]] Error with_ollama_field_names(Error error, FieldApi api, const std::vector<std::string>& option_names);

// Returns the seconds of a duration in Go's form ("5m", "1h30m", "300ms"), or nullopt for other text.
[[nodiscard]] std::optional<double> ollama_seconds(std::string_view text);

// Reads the fields that all bodies of Ollama's API may have: keep_alive, which has no effect here, and the num_ctx in `options`. Returns
// the value of keep_alive in seconds, if it is 0 or a positive number; otherwise nullopt.
[[nodiscard]] std::optional<double> read_keep_alive(ObjectReader& reader);
// Refuses a num_ctx that is larger than the context. A smaller num_ctx has no effect. `reader` reads the options.
void read_num_ctx(ObjectReader& reader, std::int64_t context);

}  // namespace quire
