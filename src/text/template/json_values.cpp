// Converts JSON to template values and back, as Python's json.loads and json.dumps do. Runs on the render's thread: when a render begins,
// and in the filter `tojson`. Keys keep their order. Integers that do not fit 64 bits become floats.
#include "text/template/json_values.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "base/json_writer.h"
#include "text/template/builtin.h"
#include "text/template/merge_sort.h"
#include "text/template/unicode.h"

namespace quire::jinja {
namespace {

constexpr int kMaxJsonDepth = 128;

class Reader {
 public:
  explicit Reader(Runtime& runtime) : runtime_(runtime) {}

  Value read(const boost::json::value& json, int depth) {
    if (depth > kMaxJsonDepth) stop(ErrorCode::too_large, 0, "the conversation is nested too deeply");
    switch (json.kind()) {
      case boost::json::kind::null:
        return Value(None{});
      case boost::json::kind::bool_:
        return Value(json.get_bool());
      case boost::json::kind::int64:
        return Value(Int{json.get_int64()});
      case boost::json::kind::uint64:
        return Value(Int{json.get_uint64()});
      case boost::json::kind::double_:
        return Value(json.get_double());
      case boost::json::kind::string:
        return make_text(std::string(json.get_string()));
      case boost::json::kind::array:
        return read_array(json.get_array(), depth);
      case boost::json::kind::object:
        break;
    }
    Dict& dict = runtime_.new_dict();
    for (const auto& [key, value] : json.get_object()) runtime_.set(dict, make_text(std::string(key)), read(value, depth + 1));
    return Value(&dict);
  }

 private:
  Value read_array(const boost::json::array& array, int depth) {
    std::vector<Value> elements;
    elements.reserve(array.size());
    for (const boost::json::value& element : array) elements.push_back(read(element, depth + 1));
    return runtime_.list(std::move(elements));
  }

  Runtime& runtime_;
};

class Writer {
 public:
  Writer(Runtime& runtime, const JsonStyle& style) : runtime_(runtime), style_(style) {}

  std::string run(const Value& value) {
    write(value, 0);
    runtime_.charge_text(out_.size());
    return std::move(out_);
  }

 private:
  void write(const Value& value, int depth) {
    runtime_.charge(1);
    if (depth > kMaxJsonDepth) stop(ErrorCode::too_large, runtime_.line(), "a value is nested too deeply");
    if (out_.size() > runtime_.options().limits.max_output_bytes) runtime_.charge_text(out_.size());
    if (value.is_text())
      write_text(value.text());
    else if (value.is<List*>() && value.as<List*>()->kind <= ListKind::tuple)
      write_list(value.as<List*>()->elements, depth);
    else if (value.is<Dict*>())
      write_dict(*value.as<Dict*>(), depth);
    else if (value.is<None>() || value.is_number())
      out_ += scalar(value);
    else
      runtime_.fail(fmt::format("Object of type {} is not JSON serializable", type_name(value)));
  }

  static std::string scalar(const Value& value) {
    if (value.is<None>()) return "null";
    if (value.is<bool>()) return value.as<bool>() ? "true" : "false";
    if (value.is<Int>()) return fmt::format("{}", value.as<Int>());
    const double number = value.as<double>();
    if (std::isnan(number)) return "NaN";
    if (std::isinf(number)) return number < 0 ? "-Infinity" : "Infinity";
    return float_repr(number);
  }

  void write_text(std::string_view text) {
    runtime_.charge(text.size() / 64);
    if (!style_.ensure_ascii) return append_json_string(out_, text);
    out_ += '"';
    for (std::size_t position = 0; position < text.size();) {
      const std::size_t start = position;
      const auto code = static_cast<std::uint32_t>(next_code_point(text, position));
      if (code >= 0x10000)
        out_ += fmt::format("\\u{:04x}\\u{:04x}", 0xD800 + ((code - 0x10000) >> 10), 0xDC00 + ((code - 0x10000) & 0x3FF));
      else if (code >= 0x7F)
        out_ += fmt::format("\\u{:04x}", code);
      else
        append_json_escaped(out_, text.substr(start, position - start));
    }
    out_ += '"';
  }

  void new_line(int depth) {
    if (!style_.indented) return;
    out_ += '\n';
    for (int i = 0; i < depth; ++i) out_ += style_.indent;
  }

  void separate(bool first, int depth) {
    if (!first) out_ += style_.item_separator;
    new_line(depth);
  }

  void write_list(const std::vector<Value>& elements, int depth) {
    out_ += '[';
    for (std::size_t i = 0; i < elements.size(); ++i) {
      separate(i == 0, depth + 1);
      write(elements[i], depth + 1);
    }
    if (!elements.empty()) new_line(depth);
    out_ += ']';
  }

  void write_dict(const Dict& dict, int depth) {
    std::vector<const std::pair<Value, Value>*> entries;
    entries.reserve(dict.entries.size());
    for (const auto& entry : dict.entries) entries.push_back(&entry);
    if (style_.sort_keys) merge_sort(entries, [&](const auto* a, const auto* b) { return runtime_.less(a->first, b->first); });
    out_ += '{';
    for (std::size_t i = 0; i < entries.size(); ++i) {
      separate(i == 0, depth + 1);
      write_key(entries[i]->first);
      out_ += style_.key_separator;
      write(entries[i]->second, depth + 1);
    }
    if (!entries.empty()) new_line(depth);
    out_ += '}';
  }

  void write_key(const Value& key) {
    if (key.is_text()) return write_text(key.text());
    if (!key.is_number() && !key.is<None>())
      runtime_.fail(fmt::format("keys must be str, int, float, bool or None, not {}", type_name(key)));
    write_text(scalar(key));
  }

  Runtime& runtime_;
  const JsonStyle& style_;
  std::string out_;
};

void read_indent(Runtime& runtime, const Value* indent, JsonStyle& style) {
  if (indent == nullptr || indent->is<None>()) return;
  style.indented = true;
  style.item_separator = ",";
  if (indent->is_text())
    style.indent = std::string(indent->text());
  else if (indent->is_int() && indent->integer() <= 64)
    style.indent = std::string(static_cast<std::size_t>(std::max(Int{0}, indent->integer())), ' ');
  else
    runtime.fail("tojson: indent must be a string or a small integer");
}

void read_separators(Runtime& runtime, const Value* separators, JsonStyle& style) {
  if (separators == nullptr || separators->is<None>()) return;
  const std::vector<Value> pair = runtime.iterate(*separators);
  if (pair.size() != 2 || !pair[0].is_text() || !pair[1].is_text()) runtime.fail("tojson: separators must be two strings");
  style.item_separator = std::string(pair[0].text());
  style.key_separator = std::string(pair[1].text());
}

}  // namespace

Value from_json(Runtime& runtime, const boost::json::value& json) {
  return Reader(runtime).read(json, 0);
}

std::string to_json(Runtime& runtime, const Value& value, const JsonStyle& style) {
  return Writer(runtime, style).run(value);
}

Value filter_tojson(Runtime& runtime, const Value& value, const Arguments& arguments) {
  const Bound bound(runtime, "filter 'tojson'", arguments, {"ensure_ascii", "indent", "separators", "sort_keys"});
  JsonStyle style;
  style.ensure_ascii = bound.flag(0, false);
  read_indent(runtime, bound.get(1), style);
  read_separators(runtime, bound.get(2), style);
  style.sort_keys = bound.flag(3, false);
  return make_text(to_json(runtime, value, style));
}

}  // namespace quire::jinja
