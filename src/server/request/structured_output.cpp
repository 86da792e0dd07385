// Reads all fields in which clients of OpenAI and vLLM request a form of the answer, into one OutputForm. Runs where the body is read, on
// the server's thread or in the job pool. Does not compile the grammar, so it detects only some errors. The engine reports the other errors
// when it compiles the grammar (GrammarThread).
#include "server/request/structured_output.h"

#include <boost/json/serialize.hpp>
#include <utility>
#include <vector>

#include "base/json_writer.h"

namespace quire {
namespace {

namespace json = boost::json;
using Kind = StructuredOutput::Kind;

constexpr std::size_t kMaxChoices = 10'000;
constexpr const char* kAnyObject = R"({"type":"object"})";

// Reads alternative fields for the output form. A request may use only one of them.
class FormReader {
 public:
  explicit FormReader(ObjectReader& reader, std::string path = {}) : reader_(&reader), path_(std::move(path)) {}

  void take(std::string_view field, Kind kind, std::string text) {
    if (form_) return reader_->reject(field, "cannot be combined with " + form_->field, "send only one of them");
    form_ = OutputForm{{.kind = kind, .text = std::move(text)}, path_ + std::string(field)};
  }
  // Reads a JSON schema: an object, or its JSON text.
  void read_schema(std::string_view field) {
    const json::value* schema = reader_->find(field);
    if (schema == nullptr || (schema->is_string() && schema->get_string().empty())) return;
    if (schema->is_string()) return take(field, Kind::json_schema, std::string(schema->get_string()));
    if (!schema->is_object() && !schema->is_bool()) return reader_->reject(field, "must be a JSON schema, not " + describe(*schema));
    take(field, Kind::json_schema, json::serialize(*schema));
  }
  void read_regex(std::string_view field) {
    if (std::string regex = reader_->text(field); !regex.empty()) take(field, Kind::regex, std::move(regex));
  }
  void read_grammar(std::string_view field) {
    std::string grammar = reader_->text(field);
    if (grammar.empty()) return;
    if (!grammar.contains("::=")) return take(field, Kind::lark, std::move(grammar));
    auto lark = lark_of_ebnf(grammar);
    if (!lark) return reader_->reject(field, std::move(lark.error().message), std::move(lark.error().remedy));
    take(field, Kind::lark, *std::move(lark));
  }
  void read_choice(std::string_view field) {
    const json::value* choices = reader_->find(field);
    if (choices == nullptr || (choices->is_string() && choices->get_string().empty())) return;
    if (!choices->is_array() || choices->get_array().empty() || choices->get_array().size() > kMaxChoices)
      return reader_->reject(field, "must be an array of 1 to 10000 strings, not " + describe(*choices));
    std::string lark = "start: ";
    for (const json::value& choice : choices->get_array()) {
      if (!choice.is_string()) return reader_->reject(field, "contains " + describe(choice), "send strings");
      lark += lark.ends_with(' ') ? "" : " | ";
      append_json_string(lark, choice.get_string());
    }
    take(field, Kind::lark, std::move(lark));
  }
  void read_tag(std::string_view field, const json::value& value) {
    auto tags = parse_structural_tag(value);
    if (!tags) {
      Error error = std::move(tags.error());
      error.field = path_ + std::string(field) + (error.field.empty() ? "" : "." + error.field);
      return reader_->reject(std::move(error));
    }
    take(field, Kind::lark, "");
    if (form_ && !reader_->failed()) form_->tags = std::move(*tags);
  }
  void read_json_object(std::string_view field) {
    if (reader_->boolean(field, false)) take(field, Kind::json_schema, kAnyObject);
  }

  // Reads Ollama's field `format`: "json" or a JSON schema.
  void read_format(std::string_view field) {
    const json::value* format = reader_->find(field);
    if (format == nullptr || (format->is_string() && format->get_string().empty())) return;
    if (*format == "json") return take(field, Kind::json_schema, kAnyObject);
    if (!format->is_object()) return reader_->reject(field, "is " + describe(*format), R"(send "json" or a JSON schema)");
    take(field, Kind::json_schema, json::serialize(*format));
  }

  // Reads vLLM's fields for white space in JSON. `pattern_field` is a regular expression for all white space. `compact_field` allows at
  // most one space, only after commas and colons.
  void read_white_space(std::string_view pattern_field, std::string_view compact_field) {
    const std::string pattern = reader_->text(pattern_field);
    const bool is_compact = !compact_field.empty() && reader_->boolean(compact_field, false);
    if (!form_ || form_->wanted.kind != Kind::json_schema) return;
    if (!pattern.empty()) form_->spelling["whitespace_pattern"] = pattern;
    if (pattern.empty() && is_compact)
      form_->spelling = {{"whitespace_flexible", false}, {"item_separator", ", ?"}, {"key_separator", ": ?"}};
  }
  void set_strict(bool is_strict) {
    if (form_) form_->is_strict = is_strict;
  }

  [[nodiscard]] std::optional<OutputForm> form() && { return std::move(form_); }
  void join(std::optional<OutputForm> other, std::string_view field) {
    if (!other) return;
    take(field, other->wanted.kind, std::move(other->wanted.text));
    if (!form_ || reader_->failed()) return;
    form_->field = std::move(other->field);
    form_->tags = std::move(other->tags);
    form_->spelling = std::move(other->spelling);
  }

 private:
  ObjectReader* reader_;
  std::string path_;
  std::optional<OutputForm> form_;
};

// Reads OpenAI's {"name", "schema", "strict", "description"}. A schema that is not strict is also enforced as far as possible.
void read_json_schema(ObjectReader& outer, FormReader& form) {
  json::value* inner = outer.find("json_schema");
  if (inner == nullptr) {
    if (json::value* schema = outer.find("schema"); schema != nullptr && (schema->is_object() || schema->is_bool()))
      return form.take("response_format", Kind::json_schema, json::serialize(*schema));
  }
  if (inner == nullptr || !inner->is_object()) return outer.reject("json_schema", "is missing", R"(send {"name": ..., "schema": {...}})");
  ObjectReader reader(inner->get_object(), "response_format.json_schema.");
  for (const char* hint : {"name", "description"}) reader.ignore(hint);
  const bool is_strict = reader.boolean("strict", false);
  const json::value* schema = reader.find("schema");
  if (schema != nullptr && !schema->is_object() && !schema->is_bool())
    reader.reject("schema", "must be an object, not " + describe(*schema));
  if (const auto done = reader.finish(); !done) return outer.reject(done.error());
  form.take("response_format", Kind::json_schema, schema != nullptr ? json::serialize(*schema) : kAnyObject);
  form.set_strict(is_strict);
}

// Reads json_object. As in llama.cpp and Together, it may have a schema.
void read_json_object_form(ObjectReader& outer, FormReader& form) {
  const json::value* schema = outer.find("schema");
  if (schema != nullptr && !schema->is_object()) return outer.reject("schema", "must be an object, not " + describe(*schema));
  form.take("response_format", Kind::json_schema, schema != nullptr ? json::serialize(*schema) : kAnyObject);
}

void read_response_format(ObjectReader& reader, FormReader& form) {
  json::value* value = reader.find("response_format");
  if (value == nullptr) return;
  if (!value->is_object()) return reader.reject("response_format", "must be an object, not " + describe(*value));
  ObjectReader inner(value->get_object(), "response_format.");
  const std::string type = inner.text("type");
  if (type == "json_schema")
    read_json_schema(inner, form);
  else if (type == "json_object")
    read_json_object_form(inner, form);
  else if (type == "structural_tag")
    form.read_tag("response_format", *value);
  else if (type != "text")
    inner.reject("type", "is \"" + type + "\"", "send text, json_object, json_schema or structural_tag");
  if (type == "structural_tag")
    for (const char* name : {"structures", "triggers"}) (void)inner.find(name);
  if (type != "json_schema") inner.ignore("json_schema");
  if (const auto done = inner.finish(); !done) reader.reject(done.error());
}

// Reads the fields of vLLM's StructuredOutputsParams.
void read_structured_outputs(ObjectReader& reader, FormReader& form) {
  json::value* value = reader.find("structured_outputs");
  if (value == nullptr) return;
  if (!value->is_object()) return reader.reject("structured_outputs", "must be an object, not " + describe(*value));
  ObjectReader inner(value->get_object(), "structured_outputs.");
  FormReader ways(inner, "structured_outputs.");
  ways.read_schema("json");
  ways.read_regex("regex");
  ways.read_choice("choice");
  ways.read_grammar("grammar");
  ways.read_json_object("json_object");
  if (const json::value* tag = inner.find("structural_tag")) ways.read_tag("structural_tag", *tag);
  ways.read_white_space("whitespace_pattern", "disable_any_whitespace");
  inner.ignore("disable_fallback");
  inner.only("disable_additional_properties", "false", "write \"additionalProperties\": false in the schema");
  if (const auto done = inner.finish(); !done) return reader.reject(done.error());
  form.join(std::move(ways).form(), "structured_outputs");
}

}  // namespace

std::optional<OutputForm> read_output_form(ObjectReader& reader) {
  FormReader form(reader);
  read_response_format(reader, form);
  read_structured_outputs(reader, form);
  form.read_schema("guided_json");
  form.read_regex("guided_regex");
  form.read_choice("guided_choice");
  form.read_grammar("guided_grammar");
  form.read_white_space("guided_whitespace_pattern", {});
  form.read_json_object("guided_json_object");
  // The remaining field names come from llama.cpp, SGLang and Ollama.
  form.read_schema("json_schema");
  form.read_grammar("grammar");
  form.read_regex("regex");
  form.read_grammar("ebnf");
  form.read_json_object("json_mode");
  form.read_format("format");
  return std::move(form).form();
}

}  // namespace quire
