// The KV-cache specs and groups: how the layers of a model keep keys, values and states.
#include <nanobind/operators.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/variant.h>
#include <nanobind/stl/vector.h>

#include <string>

#include "module.h"
#include "quire/base/kv_spec.h"

namespace quire::python {
namespace {

// A base in Python, too, but for full attention's variants: the variant of specs would take those for FullAttentionSpec.
template <class Spec>
using Attention = nb::class_<Spec, AttentionShape>;

void bind_shape(nb::module_& m) {
  nb::class_<AttentionShape>(m, "AttentionShape", "What the specs of all attention layers have.")
      .def_rw("block_size", &AttentionShape::block_size, "Tokens per block.")
      .def_rw("num_kv_heads", &AttentionShape::num_kv_heads, "Heads of keys and of values.")
      .def_rw("head_size", &AttentionShape::head_size, "Elements per head.")
      .def_rw("dtype", &AttentionShape::dtype, "Element type.")
      .def_rw("page_size_padded", &AttentionShape::page_size_padded, "Bytes of a block where padding makes pages equal, else None.");
}

template <class Spec>
Attention<Spec> bind_attention(nb::module_& m, const char* name, const char* doc) {
  return Attention<Spec>(m, name, doc).def(nb::init<>());
}

template <class Spec>
Attention<Spec> bind_full(nb::module_& m, const char* name, const char* doc) {
  return bind_attention<Spec>(m, name, doc)
      .def_rw("head_size_v", &Spec::head_size_v, "Elements per head of values; 0: head_size.")
      .def_rw("sliding_window", &Spec::sliding_window, "A window of layers that are kept as if they attended to everything.")
      .def_rw("attention_chunk_size", &Spec::attention_chunk_size, "A chunk of layers that are kept as if they attended to everything.");
}

void bind_mamba(nb::module_& m) {
  nb::enum_<MambaCacheMode>(m, "MambaCacheMode", "When the states of a mamba layer are kept.")
      .value("NONE", MambaCacheMode::none, "One state per sequence.")
      .value("ALL", MambaCacheMode::all, "A state per block.")
      .value("ALIGN", MambaCacheMode::align, "States at block ends, kept while needed.");
  nb::class_<MambaSpec>(m, "MambaSpec", "A layer that keeps a state instead of keys and values.")
      .def(nb::init<>())
      .def_rw("block_size", &MambaSpec::block_size, "Tokens per block.")
      .def_rw("shapes", &MambaSpec::shapes, "Shapes of the state tensors.")
      .def_rw("dtypes", &MambaSpec::dtypes, "One element type per shape.")
      .def_rw("page_size_padded", &MambaSpec::page_size_padded, "Bytes of a block where padding makes pages equal, else None.")
      .def_rw("mamba_type", &MambaSpec::mamba_type, "Kind of mamba layer, e.g. 'mamba2'.")
      .def_rw("mode", &MambaSpec::mode, "When states are kept.")
      .def_rw("num_speculative_blocks", &MambaSpec::num_speculative_blocks, "Further blocks for draft tokens.");
}

}  // namespace

void bind_specs(nb::module_& m) {
  nb::class_<CacheDtype>(m, "CacheDtype", "An element type by name, with its size.")
      .def(
          "__init__", [](CacheDtype* self, std::string name, std::uint32_t bytes) { new (self) CacheDtype{std::move(name), bytes}; },
          nb::arg("name"), nb::arg("bytes"))
      .def_rw("name", &CacheDtype::name, "E.g. 'bfloat16'.")
      .def_rw("bytes", &CacheDtype::bytes, "Bytes of an element.");
  bind_shape(m);
  bind_full<FullAttentionSpec>(m, "FullAttentionSpec", "A layer in which every token attends to all tokens before it.");
  bind_full<MlaAttentionSpec>(m, "MlaAttentionSpec", "Multi-head latent attention.")
      .def_rw("cache_dtype", &MlaAttentionSpec::cache_dtype, "'fp8_ds_mla' has a page size of its own.");
  bind_full<SinkFullAttentionSpec>(m, "SinkFullAttentionSpec", "Full attention whose first tokens have blocks set aside for ever.")
      .def_rw("sink_len", &SinkFullAttentionSpec::sink_len, "Tokens, a positive multiple of block_size.");
  bind_attention<SlidingWindowSpec>(m, "SlidingWindowSpec", "A layer in which a token attends to the tokens of a window before it.")
      .def_rw("sliding_window", &SlidingWindowSpec::sliding_window, "Tokens of the window, the current one among them.");
  bind_attention<ChunkedLocalSpec>(m, "ChunkedLocalSpec", "A layer in which a token attends to its own chunk.")
      .def_rw("attention_chunk_size", &ChunkedLocalSpec::attention_chunk_size, "Tokens of a chunk.");
  bind_attention<CrossAttentionSpec>(m, "CrossAttentionSpec", "A decoder layer that attends to the encoder's output.");
  bind_attention<EncoderOnlySpec>(m, "EncoderOnlySpec", "A layer without a cache.");
  bind_mamba(m);

  nb::class_<KvCacheGroup>(m, "KvCacheGroup", "Layers that share one block table.")
      .def(
          "__init__",
          [](KvCacheGroup* self, std::vector<std::string> layer_names, LayerKvSpec spec) {
            new (self) KvCacheGroup{std::move(layer_names), std::move(spec), {}};
          },
          nb::arg("layer_names"), nb::arg("spec"))
      .def_rw("layer_names", &KvCacheGroup::layer_names)
      .def_rw("spec", &KvCacheGroup::spec);
}

}  // namespace quire::python
