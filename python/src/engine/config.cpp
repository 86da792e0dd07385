// Binds EngineConfig, the options of an engine, from their tables (quire/engine_option_table.h).
#include <nanobind/stl/map.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include <algorithm>
#include <cstdint>
#include <string>
#include <string_view>
#include <utility>

#include "engine/parts.h"
#include "quire/engine_option_table.h"

namespace quire::python {
namespace {

using Class = nb::class_<EngineConfig>;

template <class Value>
concept HasWords = requires(Value value) { words_of(value); };

// Returns the value as text. An option without a value, which the engine then chooses, is an empty text.
template <HasWords Value>
std::string word_of(const Value& value) {
  for (const auto& [text, choice] : words_of(value))
    if (value == choice) return std::string(text);
  return {};
}

template <HasWords Value>
void set_word(Value& value, const std::string& name, const std::string& word) {
  std::string known;
  for (const auto& [text, choice] : words_of(value)) {
    if (text == word) {
      value = choice;
      return;
    }
    known.append(known.empty() ? "" : ", ").append(text);
  }
  if constexpr (requires { value.reset(); }) {
    if (word.empty()) return value.reset();
    known += ", or an empty string";
  }
  throw nb::value_error((name + ": is '" + word + "'; use one of " + known).c_str());
}

// Adds the options of a table. `struct_of` returns the struct in an EngineConfig to which the table belongs.
template <class Table, class StructOf>
void bind_table(Class& c, const Table& table, const StructOf& struct_of) {
  EngineConfig sample;
  for (const auto& option : table) {
    if (option.value == nullptr || option.info.flag.empty()) continue;
    const auto bind = [&]<class Value>(const Value* /*type*/) {
      const std::string name = keyword_of(option.info.flag), doc = with_keywords(option.info.help) + ".";
      const auto get = [value = option.value, struct_of](EngineConfig& self) -> Value& {
        return *std::get<Value*>(value(struct_of(self)));
      };
      if constexpr (HasWords<Value>)
        c.def_prop_rw(
            name.c_str(), [get](EngineConfig& self) { return word_of(get(self)); },
            [get, name](EngineConfig& self, const std::string& word) { set_word(get(self), name, word); }, doc.c_str());
      else
        c.def_prop_rw(
            name.c_str(), [get](EngineConfig& self) -> Value { return get(self); },
            [get](EngineConfig& self, Value value) { get(self) = std::move(value); }, doc.c_str());
    };
    std::visit([&](const auto* value) { bind(value); }, option.value(struct_of(sample)));
  }
}

void bind_adapters(Class& c) {
  c.def_rw("enable_lora", &EngineConfig::enable_lora, "Serve LoRA adapters in addition to the model.");
  c.def_rw("lora_modules", &EngineConfig::lora_modules, "Folders of adapters by name, loaded at start.");
}

}  // namespace

void bind_engine_config(nb::module_& m) {
  Class c(
      m, "EngineConfig",
      "Options of an engine: the flags of `quire serve`, with underscores. `quire serve --help` describes each flag. Sizes are numbers\n"
      "of bytes here, 0 for auto.");
  c.def("__init__", [](nb::pointer_and_handle<EngineConfig> self, const nb::kwargs& options) {
    new (self.p) EngineConfig();
    nb::inst_mark_ready(self.h);
    set_options<EngineConfig>(self.h, options, "EngineConfig");
  });
  nb::list sizes;
  visit_engine_options([&](const auto& table, const auto& struct_of) {
    bind_table(c, table, struct_of);
    for (const auto& [value, info] : table)
      if (info.kind == OptionKind::bytes) sizes.append(keyword_of(info.flag));
  });
  bind_adapters(c);
  m.attr("SIZE_OPTIONS") = nb::tuple(sizes);
}

}  // namespace quire::python
