// Finds and lists model families. Called while a model's headers are read; any thread.
#include "runtime/model/config/families.h"

#include <fmt/format.h>

#include <algorithm>

namespace quire {
namespace {

// Returns all families by name. `names_of` returns the names of a row; some may be empty.
template <class NamesOf>
std::vector<FamilyName> named(NamesOf names_of) {
  std::vector<FamilyName> all;
  for (const auto& [section, rows] :
       {std::pair("a dense model", dense_families()), {"a mixture of experts", expert_families()}, {"a hybrid model", hybrid_families()}})
    for (const ModelFamily& family : rows)
      for (const std::string_view name : names_of(family))
        if (!name.empty()) all.push_back({name, section, &family});
  return all;
}

const ModelFamily* find_family(const std::vector<FamilyName>& families, std::string_view name) {
  const auto found = std::ranges::find(families, name, &FamilyName::name);
  return found == families.end() ? nullptr : found->family;
}

}  // namespace

void ModelFamily::set_norms(ModelConfig& config) const {
  config.pre_norms = pre_norms;
  config.post_norms = post_norms;
  config.late_qk_norm = late_qk_norm;
  config.late_norm_name = late_norm_name;
  config.attention_sinks = attention_sinks;
}

std::vector<FamilyName> hf_families() {
  return named([](const ModelFamily& family) { return std::array{family.hf.name, family.hf.alias}; });
}

std::vector<FamilyName> gguf_families() {
  return named([](const ModelFamily& family) { return family.gguf.names; });
}

const ModelFamily* find_hf_family(std::string_view model_type) {
  return find_family(hf_families(), model_type);
}

const ModelFamily* find_gguf_family(std::string_view architecture) {
  return find_family(gguf_families(), architecture);
}

std::string list_families(const std::vector<FamilyName>& families) {
  std::string list;
  std::string_view section;
  for (const FamilyName& family : families) {
    list += family.section == section ? ", " : fmt::format("{}{} (", list.empty() ? "use " : "), ", family.section);
    list += family.name;
    section = family.section;
  }
  return list + ")";
}

}  // namespace quire
