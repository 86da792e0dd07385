#pragma once
// Describes one option as data. The tables of these rows (core_option_table.h, engine_option_table.h, server_option_table.h) are the source
// of these options' flags, keywords of Python, range checks, names in errors, and docs/options.md. src/cli/flags and src/cli/serve.cpp
// define the flags that set several options or need parsing.
#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "quire/base/decision_profile.h"
#include "quire/base/kv_role.h"
#include "quire/base/options.h"

namespace quire {

// The section of --help that lists a flag.
enum class OptionGroup : std::uint8_t {
  model,
  server,
  kv_cache,
  scheduling,
  tiers,
  speculation,
  lora,
  multimodal,
  observability,
  security,
  advanced
};

constexpr const char* title_of(OptionGroup group) {
  constexpr const char* kTitles[] = {"Model", "Server",     "KV cache",      "Scheduling", "Tiers",   "Speculative decoding",
                                     "LoRA",  "Multimodal", "Observability", "Security",   "Advanced"};
  return kTitles[static_cast<std::size_t>(group)];
}

enum class OptionKind : std::uint8_t {
  plain,
  bytes,            // a size in bytes, which a user may also write as "512MiB"
  share,            // a fraction, at most 1
  seconds,          // a number of seconds
  existing_folder,  // a folder that must exist
  parsed,           // a front end parses the value and adds the flag itself
};

// Bounds of a number; both are allowed values.
struct OptionRange {
  std::uint64_t low = 0, high = 0;
};

// A pointer to the option's member in its struct.
using OptionValue =
    std::variant<bool*, std::uint16_t*, std::uint32_t*, std::uint64_t*, std::int64_t*, double*, std::string*, std::vector<std::string>*,
                 KvDtype*, std::optional<MambaCacheMode>*, HashAlgorithm*, SchedulingPolicy*, SwapChoice*, KvLoadFailurePolicy*,
                 WeightQuantisation*, ActivationMode*, KernelIsa*, DecisionProfile*, KvRole*>;

// Returns the Python keyword of a flag: "kv_swap" for "--kv-swap".
inline std::string keyword_of(std::string_view flag) {
  std::string keyword(flag.substr(std::min(flag.find_first_not_of('-'), flag.size())));
  std::ranges::replace(keyword, '-', '_');
  return keyword;
}

// Describes an option, except for its member, which is in Option.
struct OptionInfo {
  // The flag with its dashes. The Python keyword is the flag without leading dashes and with underscores. Empty: a user cannot set the
  // option.
  std::string_view flag = {};
  std::string_view field = {};  // name in errors, and in quire.CoreConfig; empty: the keyword
  OptionGroup group = OptionGroup::advanced;
  OptionKind kind = OptionKind::plain;
  std::string_view type = {};                  // type of the value in --help; empty: the name of the C++ type
  std::string_view shown_default = {};         // default of a size in --help; empty: the help text states it
  std::optional<OptionRange> range = {};       // bounds in an engine or server; empty: any value, or bounds that depend on other options
  std::optional<OptionRange> core_range = {};  // bounds in CoreConfig
  std::string_view needs = {};                 // another flag that is required with this one
  bool can_be_negated = false;                 // there is also a flag --no-...
  bool separated_by_commas = false;            // the flag takes a list; otherwise a list is given by repeating the flag
  const char* env = "";                        // environment variable that sets the flag
  std::string_view help = {};                  // text for --help, where other options are named by their flags
  std::string_view note = {};                  // note in docs/options.md for a field of CoreConfig or ServerOptions

  // Returns the name that errors use for the option.
  [[nodiscard]] std::string name() const { return field.empty() ? keyword_of(flag) : std::string(field); }
};

template <class Options>
struct Option {
  OptionValue (*value)(Options&);  // returns a pointer to the member; nullptr: not a scalar, so each front end sets it itself
  OptionInfo info;
};

template <class Member>
struct ClassOf;
template <class Class, class Member>
struct ClassOf<Member Class::*> {
  using Type = Class;
};
// Returns a pointer to the member of `options`, for the rows of a table.
template <auto kMember>
OptionValue member(typename ClassOf<decltype(kMember)>::Type& options) {
  return &(options.*kMember);
}

// Returns `text` with each flag replaced by its Python keyword.
inline std::string with_keywords(std::string_view text) {
  std::string out;
  for (std::size_t at = 0; at < text.size();) {
    const bool begins_word = at == 0 || std::string_view(" (,/'").find(text[at - 1]) != std::string_view::npos;
    const std::size_t end = std::min(text.find_first_not_of("abcdefghijklmnopqrstuvwxyz-", at), text.size());
    const std::string_view word = text.substr(at, end - at);
    const bool is_flag = begins_word && word.starts_with("--") && word.size() > 2;
    out += is_flag ? keyword_of(word) : std::string(text.substr(at, std::max<std::size_t>(word.size(), 1)));
    at += std::max<std::size_t>(word.size(), 1);
  }
  return out;
}

// A value of an enumeration, and the word that a user writes for it.
template <class Enum>
struct Word {
  std::string_view text;
  Enum value;
};
template <class Enum, std::size_t kNum>
using Words = std::array<Word<Enum>, kNum>;

constexpr auto words_of(KvDtype /*kind*/) {
  return Words<KvDtype, 3>{{{"bf16", KvDtype::bf16}, {"f32", KvDtype::f32}, {"int8", KvDtype::int8}}};
}
constexpr auto words_of(MambaCacheMode /*kind*/) {
  return Words<MambaCacheMode, 3>{{{"none", MambaCacheMode::none}, {"all", MambaCacheMode::all}, {"align", MambaCacheMode::align}}};
}
constexpr auto words_of(HashAlgorithm /*kind*/) {
  return Words<HashAlgorithm, 5>{{{"canonical", HashAlgorithm::canonical},
                                  {"sha256", HashAlgorithm::sha256},
                                  {"sha256_cbor", HashAlgorithm::sha256_cbor},
                                  {"xxhash", HashAlgorithm::xxhash},
                                  {"xxhash_cbor", HashAlgorithm::xxhash_cbor}}};
}
constexpr auto words_of(SchedulingPolicy /*kind*/) {
  return Words<SchedulingPolicy, 3>{
      {{"fcfs", SchedulingPolicy::fcfs}, {"priority", SchedulingPolicy::priority}, {"continuum", SchedulingPolicy::continuum}}};
}
constexpr auto words_of(SwapChoice /*kind*/) {
  return Words<SwapChoice, 3>{{{"off", SwapChoice::off}, {"always", SwapChoice::always}, {"measured", SwapChoice::measured}}};
}
constexpr auto words_of(KvLoadFailurePolicy /*kind*/) {
  return Words<KvLoadFailurePolicy, 2>{{{"fail", KvLoadFailurePolicy::fail}, {"recompute", KvLoadFailurePolicy::recompute}}};
}
constexpr auto words_of(WeightQuantisation /*kind*/) {
  return Words<WeightQuantisation, 3>{
      {{"none", WeightQuantisation::none}, {"q8_0", WeightQuantisation::q8_0}, {"q4_k", WeightQuantisation::q4_k}}};
}
constexpr auto words_of(ActivationMode /*kind*/) {
  return Words<ActivationMode, 4>{
      {{"int16", ActivationMode::int16}, {"f32", ActivationMode::f32}, {"int8", ActivationMode::int8}, {"bf16", ActivationMode::bf16}}};
}
constexpr auto words_of(KernelIsa /*kind*/) {
  return Words<KernelIsa, 9>{{{"best", KernelIsa::best},
                              {"reference", KernelIsa::reference},
                              {"avx2", KernelIsa::avx2},
                              {"avx_vnni", KernelIsa::avx_vnni},
                              {"avx512", KernelIsa::avx512},
                              {"avx512_bf16", KernelIsa::avx512_bf16},
                              {"amx", KernelIsa::amx},
                              {"neon", KernelIsa::neon},
                              {"neon_i8mm", KernelIsa::neon_i8mm}}};
}
constexpr auto words_of(DecisionProfile /*kind*/) {
  return Words<DecisionProfile, 2>{{{"vllm_0_19", DecisionProfile::vllm_0_19}, {"vllm_0_32", DecisionProfile::vllm_0_32}}};
}
constexpr auto words_of(KvRole /*kind*/) {
  return Words<KvRole, 4>{{{"none", KvRole::none}, {"producer", KvRole::producer}, {"consumer", KvRole::consumer}, {"both", KvRole::both}}};
}
template <class Enum>
constexpr auto words_of(std::optional<Enum> /*kind*/) {
  return words_of(Enum());
}

}  // namespace quire
