#pragma once
// Lists the fields of a core's configuration in the order of their bytes, which is the order of their declaration, once for writing and
// reading. If a field is added, increase the version in config_bytes.cpp. Only config_bytes.cpp includes this file, and `Archive` is its
// writer or its reader.
#include <boost/pfr.hpp>
#include <concepts>
#include <type_traits>

#include "quire/base/core_config.h"

namespace quire {

template <class T, class Value>
concept Is = std::same_as<std::remove_const_t<T>, Value>;

// A structured binding cannot name the fields of a type with a base. These concepts check the number of fields after the base, so that a
// new field does not compile until it is listed.
template <class T>
concept HasBaseAnd0 = requires { T{{}}; } && !requires { T{{}, {}}; };
template <class T>
concept HasBaseAnd1 = requires { T{{}, {}}; } && !requires { T{{}, {}, {}}; };
template <class T>
concept HasBaseAnd3 = requires { T{{}, {}, {}, {}}; } && !requires { T{{}, {}, {}, {}, {}}; };

template <class Base, class Spec>
auto& base_of(Spec& spec) {
  return static_cast<std::conditional_t<std::is_const_v<Spec>, const Base, Base>&>(spec);
}

// Visits all members of a struct without a base, in their order.
template <class Archive, class Struct>
void fields(Archive& form, Struct& value) {
  boost::pfr::for_each_field(value, [&form](auto& field) { form(field); });
}

template <class Archive>
void fields(Archive& form, Is<FullAttentionSpec> auto& spec) {
  static_assert(HasBaseAnd3<FullAttentionSpec>);
  form(base_of<AttentionShape>(spec), spec.head_size_v, spec.sliding_window, spec.attention_chunk_size);
}

template <class Archive>
void fields(Archive& form, Is<MlaAttentionSpec> auto& spec) {
  static_assert(HasBaseAnd1<MlaAttentionSpec>);
  form(base_of<FullAttentionSpec>(spec), spec.cache_dtype);
}

template <class Archive>
void fields(Archive& form, Is<SinkFullAttentionSpec> auto& spec) {
  static_assert(HasBaseAnd1<SinkFullAttentionSpec>);
  form(base_of<FullAttentionSpec>(spec), spec.sink_len);
}

template <class Archive>
void fields(Archive& form, Is<SlidingWindowSpec> auto& spec) {
  static_assert(HasBaseAnd1<SlidingWindowSpec>);
  form(base_of<AttentionShape>(spec), spec.sliding_window);
}

template <class Archive>
void fields(Archive& form, Is<ChunkedLocalSpec> auto& spec) {
  static_assert(HasBaseAnd1<ChunkedLocalSpec>);
  form(base_of<AttentionShape>(spec), spec.attention_chunk_size);
}

template <class Archive>
void fields(Archive& form, Is<CrossAttentionSpec> auto& spec) {
  static_assert(HasBaseAnd0<CrossAttentionSpec>);
  form(base_of<AttentionShape>(spec));
}

template <class Archive>
void fields(Archive& form, Is<EncoderOnlySpec> auto& spec) {
  static_assert(HasBaseAnd0<EncoderOnlySpec>);
  form(base_of<AttentionShape>(spec));
}

}  // namespace quire
