#pragma once
// Reads the fields of a body that choose a model. The model's own server reads and checks the whole body.
#include <optional>
#include <string>
#include <string_view>

namespace quire {

struct RequestedModel {
  std::string model;                   // empty: the body names none
  std::optional<double> keep_alive_s;  // Ollama's keep_alive; < 0: until its memory is needed
  bool has_input = false;              // the body has a prompt, suffix, input, messages or images that are not empty
};

// Reads a JSON body, or a form if the content type is multipart/form-data. Takes the first value of a repeated field. Ignores errors. Time
// is linear in the size of the body; after "model", the rest is read only if `is_ollama`.
[[nodiscard]] RequestedModel read_requested_model(std::string_view body, std::string_view content_type, bool is_ollama);

}  // namespace quire
