// Binds the specs of KV caches and the cache groups: how the layers of a model store keys, values and states.
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

// Base class of all attention specs in Python. The variants of full attention do not derive from FullAttentionSpec in Python, because
// nanobind would convert them to FullAttentionSpec in the std::variant of specs.
template <class Spec>
using Attention = nb::class_<Spec, AttentionShape>;

void bind_shape(nb::module_& m) {
  nb::class_<AttentionShape>(m, "AttentionShape", "Fields that all attention specs have.")
      .def_rw("block_size", &AttentionShape::block_size, "Tokens per block.")
      .def_rw("num_kv_heads", &AttentionShape::num_kv_heads, "Number of key and value heads.")
      .def_rw("head_size", &AttentionShape::head_size, "Elements per head.")
      .def_rw("dtype", &AttentionShape::dtype, "Element type.")
      .def_rw("page_size_padded", &AttentionShape::page_size_padded, "Bytes of a padded block, if padding makes pages equal; else None.");
}

template <class Spec>
Attention<Spec> bind_attention(nb::module_& m, const char* name, const char* doc) {
  return Attention<Spec>(m, name, doc).def(nb::init<>());
}

template <class Spec>
Attention<Spec> bind_full(nb::module_& m, const char* name, const char* doc) {
  return bind_attention<Spec>(m, name, doc)
      .def_rw("head_size_v", &Spec::head_size_v, "Elements per head of values; 0: head_size.")
      .def_rw("sliding_window", &Spec::sliding_window, "Window in tokens, if layers with a window are cached as full attention; else None.")
      .def_rw("attention_chunk_size", &Spec::attention_chunk_size,
              "Chunk size in tokens, if layers with chunks are cached as full attention; else None.");
}

void bind_mamba(nb::module_& m) {
  nb::enum_<MambaCacheMode>(m, "MambaCacheMode", "Which states of a layer are cached.")
      .value("NONE", MambaCacheMode::none, "One state per sequence.")
      .value("ALL", MambaCacheMode::all, "One state per block.")
      .value("ALIGN", MambaCacheMode::align, "States at block ends, kept while they are needed.");
  nb::class_<MambaSpec>(m, "MambaSpec", "A layer with states instead of keys and values.")
      .def(nb::init<>())
      .def_rw("block_size", &MambaSpec::block_size, "Tokens per block.")
      .def_rw("shapes", &MambaSpec::shapes, "Shapes of the state tensors.")
      .def_rw("dtypes", &MambaSpec::dtypes, "One element type per shape.")
      .def_rw("page_size_padded", &MambaSpec::page_size_padded, "Bytes of a padded block, if padding makes pages equal; else None.")
      .def_rw("mamba_type", &MambaSpec::mamba_type, "Kind of the layer, such as 'mamba2'.")
      .def_rw("mode", &MambaSpec::mode, "Which states are cached.")
      .def_rw("num_speculative_blocks", &MambaSpec::num_speculative_blocks, "Number of additional blocks for draft tokens.");
}

}  // namespace

void bind_specs(nb::module_& m) {
  nb::class_<CacheDtype>(m, "CacheDtype", "An element type: its name and its size.")
      .def(
          "__init__", [](CacheDtype* self, std::string name, std::uint32_t bytes) { new (self) CacheDtype{std::move(name), bytes}; },
          nb::arg("name"), nb::arg("bytes"))
      .def_rw("name", &CacheDtype::name, "Name, such as 'bfloat16'.")
      .def_rw("bytes", &CacheDtype::bytes, "Bytes per element.");
  bind_shape(m);
  bind_full<FullAttentionSpec>(m, "FullAttentionSpec", "Each token attends to all earlier tokens.");
  bind_full<MlaAttentionSpec>(m, "MlaAttentionSpec", "Multi-head latent attention: one vector per token for all heads.")
      .def_rw("cache_dtype", &MlaAttentionSpec::cache_dtype, "Data type of the cache; 'fp8_ds_mla' has a special page size.");
  bind_full<SinkFullAttentionSpec>(m, "SinkFullAttentionSpec",
                                   "Full attention with sink tokens. Blocks for the sink are reserved at start.")
      .def_rw("sink_len", &SinkFullAttentionSpec::sink_len, "Number of sink tokens, a positive multiple of block_size.");
  bind_attention<SlidingWindowSpec>(m, "SlidingWindowSpec", "Each token attends to a window of the latest tokens.")
      .def_rw("sliding_window", &SlidingWindowSpec::sliding_window, "Number of tokens in the window, including the current token.");
  bind_attention<ChunkedLocalSpec>(m, "ChunkedLocalSpec", "Attention within fixed chunks: a token attends to earlier tokens of its chunk.")
      .def_rw("attention_chunk_size", &ChunkedLocalSpec::attention_chunk_size, "Number of tokens in a chunk.");
  bind_attention<CrossAttentionSpec>(m, "CrossAttentionSpec", "Decoder layers that attend to an encoder's output.");
  bind_attention<EncoderOnlySpec>(m, "EncoderOnlySpec", "An attention layer of an encoder, which needs no cache.");
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
