// Encodes event batches in both formats. Called by the publisher on the engine thread, once per batch. Encoding cannot fail, because all
// events of the core can be encoded.
#include "engine/publish/kv_event_bytes.h"

#include <algorithm>
#include <bit>
#include <concepts>
#include <string_view>

namespace quire {
namespace {

// Writes the part of msgpack that events need (https://github.com/msgpack/msgpack/blob/master/spec.md). Integers have their shortest form.
class Packer {
 public:
  explicit Packer(std::string& out) : out_(out) {}

  void nil() { byte(0xC0); }
  void real(double value) { tagged(0xCB, std::bit_cast<std::uint64_t>(value)); }
  void integer(std::uint64_t value) {
    if (value < 0x80)
      byte(static_cast<std::uint8_t>(value));
    else if (value <= UINT8_MAX)
      tagged(0xCC, static_cast<std::uint8_t>(value));
    else if (value <= UINT16_MAX)
      tagged(0xCD, static_cast<std::uint16_t>(value));
    else if (value <= UINT32_MAX)
      tagged(0xCE, static_cast<std::uint32_t>(value));
    else
      tagged(0xCF, value);
  }
  void signed_integer(std::int64_t value) {
    if (value >= 0)
      integer(static_cast<std::uint64_t>(value));
    else if (value >= -32)
      byte(static_cast<std::uint8_t>(value));
    else if (value >= INT8_MIN)
      tagged(0xD0, static_cast<std::uint8_t>(value));
    else if (value >= INT16_MIN)
      tagged(0xD1, static_cast<std::uint16_t>(value));
    else if (value >= INT32_MIN)
      tagged(0xD2, static_cast<std::uint32_t>(value));
    else
      tagged(0xD3, static_cast<std::uint64_t>(value));
  }
  void text(std::string_view value) {
    if (value.size() < 32)
      byte(static_cast<std::uint8_t>(0xA0 | value.size()));
    else
      sized(0xD9, 0xDA, 0xDB, value.size());
    out_ += value;
  }
  void bytes(std::span<const std::uint8_t> value) {
    sized(0xC4, 0xC5, 0xC6, value.size());
    out_.append(value.begin(), value.end());
  }
  // Begins a map of `size` pairs; `size` must be below 16.
  void map(std::size_t size) { byte(static_cast<std::uint8_t>(0x80 | size)); }
  // Begins an array of `size` values.
  void array(std::size_t size) {
    if (size < 16)
      byte(static_cast<std::uint8_t>(0x90 | size));
    else if (size <= UINT16_MAX)
      tagged(0xDC, static_cast<std::uint16_t>(size));
    else
      tagged(0xDD, static_cast<std::uint32_t>(size));
  }

 private:
  void byte(std::uint8_t value) { out_ += static_cast<char>(value); }
  template <std::unsigned_integral Number>
  void tagged(std::uint8_t tag, Number value) {
    byte(tag);
    for (std::size_t shift = 8 * sizeof(Number); shift > 0; shift -= 8) byte(static_cast<std::uint8_t>(value >> (shift - 8)));
  }
  void sized(std::uint8_t tag8, std::uint8_t tag16, std::uint8_t tag32, std::size_t size) {
    if (size <= UINT8_MAX)
      tagged(tag8, static_cast<std::uint8_t>(size));
    else if (size <= UINT16_MAX)
      tagged(tag16, static_cast<std::uint16_t>(size));
    else
      tagged(tag32, static_cast<std::uint32_t>(size));
  }

  std::string& out_;
};

void pack_hash(Packer& out, const KvEventHash& hash, KvHashForm form) {
  if (form == KvHashForm::bytes) return out.bytes(hash);
  std::uint64_t last = 0;
  for (std::size_t i = hash.size() - std::min<std::size_t>(hash.size(), 8); i < hash.size(); ++i) last = (last << 8) | hash[i];
  out.integer(last);
}

void pack_key(Packer& out, const KvExtraKey& key) {
  if (const auto* name = std::get_if<std::string>(&key)) {
    out.text(*name);
  } else if (const auto* item = std::get_if<MultimodalKey>(&key)) {
    out.array(2);
    out.text(item->identifier);
    out.signed_integer(item->offset);
  } else {
    out.bytes(std::get<std::vector<std::uint8_t>>(key));
  }
}

void pack_extra_keys(Packer& out, const std::vector<std::optional<KvExtraKeys>>& extra_keys) {
  out.array(extra_keys.size());
  for (const auto& keys : extra_keys) {
    if (!keys) {
      out.nil();
      continue;
    }
    out.array(keys->size());
    for (const KvExtraKey& key : *keys) pack_key(out, key);
  }
}

void pack_hashes(Packer& out, const std::vector<KvEventHash>& hashes, KvHashForm form) {
  out.array(hashes.size());
  for (const KvEventHash& hash : hashes) pack_hash(out, hash, form);
}

void pack_tokens(Packer& out, const std::vector<TokenId>& tokens) {
  out.array(tokens.size());
  for (const TokenId token : tokens) out.signed_integer(token);
}

// Writes structs as arrays, with each field at its index.
class ArrayEvents {
 public:
  ArrayEvents(Packer& out, const KvEventEncoding& encoding) : out_(out), form_(encoding.hashes) {}

  void operator()(const BlockStored& event) {
    out_.array(9);
    out_.text("BlockStored");
    pack_hashes(out_, event.block_hashes, form_);
    event.parent_block_hash ? pack_hash(out_, *event.parent_block_hash, form_) : out_.nil();
    pack_tokens(out_, event.token_ids);
    out_.integer(event.block_size);
    event.lora_id ? out_.signed_integer(*event.lora_id) : out_.nil();
    out_.text(event.medium);
    event.lora_name ? out_.text(*event.lora_name) : out_.nil();
    event.extra_keys ? pack_extra_keys(out_, *event.extra_keys) : out_.nil();
  }

  void operator()(const BlockRemoved& event) {
    out_.array(3);
    out_.text("BlockRemoved");
    out_.array(1);
    pack_hash(out_, event.block_hash, form_);
    out_.text(event.medium);
  }

  void operator()(const AllBlocksCleared& /*event*/) {
    out_.array(1);
    out_.text("AllBlocksCleared");
  }

 private:
  Packer& out_;
  KvHashForm form_;
};

// Writes structs as maps, in the order of their fields. As in vLLM, a field with a declared default is omitted while it has this default
// (extra_keys, kv_cache_spec_kind). A field without a declared default is always written, as nil if it is null (lora_id).
class MapEvents {
 public:
  MapEvents(Packer& out, const KvEventEncoding& encoding) : out_(out), encoding_(encoding) {}

  void operator()(const BlockStored& event) {
    // Events of tiers have no tokens, and no fields that depend on tokens, such as the block size.
    const bool has_tokens = !event.token_ids.empty();
    const KvEventGroup* group = has_tokens && event.group_idx < encoding_.groups.size() ? &encoding_.groups[event.group_idx] : nullptr;
    const bool has_window = group != nullptr && group->sliding_window;
    out_.map(9U + (event.extra_keys ? 1U : 0U) + (group != nullptr ? 1U : 0U) + (has_window ? 1U : 0U));
    begin("BlockStored");
    out_.text("block_hashes");
    pack_hashes(out_, event.block_hashes, encoding_.hashes);
    out_.text("parent_block_hash");
    event.parent_block_hash ? pack_hash(out_, *event.parent_block_hash, encoding_.hashes) : out_.nil();
    out_.text("token_ids");
    pack_tokens(out_, event.token_ids);
    out_.text("block_size");
    out_.integer(has_tokens ? event.block_size : 0);
    out_.text("lora_id");
    event.lora_id ? out_.signed_integer(*event.lora_id) : out_.nil();
    medium(event.medium);
    out_.text("lora_name");
    event.lora_name ? out_.text(*event.lora_name) : out_.nil();
    if (event.extra_keys) {
      out_.text("extra_keys");
      pack_extra_keys(out_, *event.extra_keys);
    }
    out_.text("group_idx");
    out_.integer(event.group_idx);
    if (group == nullptr) return;
    out_.text("kv_cache_spec_kind");
    out_.text(group->kind);
    if (!has_window) return;
    out_.text("kv_cache_spec_sliding_window");
    out_.integer(group->sliding_window.value_or(0));
  }

  void operator()(const BlockRemoved& event) {
    out_.map(4);
    begin("BlockRemoved");
    out_.text("block_hashes");
    out_.array(1);
    pack_hash(out_, event.block_hash, encoding_.hashes);
    medium(event.medium);
    out_.text("group_idx");
    out_.integer(event.group_idx);
  }

  void operator()(const AllBlocksCleared& /*event*/) {
    out_.map(1);
    begin("AllBlocksCleared");
  }

 private:
  void begin(std::string_view type) {
    out_.text("type");
    out_.text(type);
  }
  void medium(std::string_view name) {
    out_.text("medium");
    out_.text(name == "DISK" ? "STORAGE" : name);
  }

  Packer& out_;
  const KvEventEncoding& encoding_;
};

std::string_view kind_of(const LayerKvSpec& spec) {
  struct Names {
    std::string_view operator()(const FullAttentionSpec&) const { return "full_attention"; }
    std::string_view operator()(const MlaAttentionSpec&) const { return "mla_attention"; }
    std::string_view operator()(const SinkFullAttentionSpec&) const { return "sink_full_attention"; }
    std::string_view operator()(const SlidingWindowSpec&) const { return "sliding_window"; }
    std::string_view operator()(const ChunkedLocalSpec&) const { return "chunked_local_attention"; }
    std::string_view operator()(const MambaSpec&) const { return "mamba"; }
    std::string_view operator()(const CrossAttentionSpec&) const { return "cross_attention"; }
    std::string_view operator()(const EncoderOnlySpec&) const { return "encoder_only_attention"; }
  };
  return std::visit(Names(), spec);
}

KvEventGroup group_of(const KvCacheGroup& group) {
  KvEventGroup told{.kind = kind_of(group.spec), .sliding_window = {}};
  if (const auto* window = std::get_if<SlidingWindowSpec>(&group.spec)) told.sliding_window = window->sliding_window;
  // A group with layers of several kinds counts as full attention if all layers are cached as full attention, and as unknown otherwise.
  if (std::ranges::any_of(group.layer_specs, [&](const LayerKvSpec& spec) { return kind_of(spec) != told.kind; }))
    told.kind = std::ranges::all_of(group.layer_specs, is_full_attention) ? "full_attention" : "unknown";
  // A group with windows of several widths reports no window.
  if (std::ranges::any_of(group.layer_specs, [&](const LayerKvSpec& spec) {
        const auto* window = std::get_if<SlidingWindowSpec>(&spec);
        return window == nullptr || window->sliding_window != told.sliding_window;
      }))
    told.sliding_window.reset();
  return told;
}

template <class Events>
void pack_batch(Packer& packer, double time_s, std::span<const KvEvent> events, std::uint32_t rank, const KvEventEncoding& encoding) {
  packer.array(3);
  packer.real(time_s);
  packer.array(events.size());
  Events writer(packer, encoding);
  for (const KvEvent& event : events) std::visit(writer, event);
  packer.integer(rank);
}

}  // namespace

std::vector<KvEventGroup> kv_event_groups(std::span<const KvCacheGroup> groups) {
  std::vector<KvEventGroup> told;
  told.reserve(groups.size());
  for (const KvCacheGroup& group : groups) told.push_back(group_of(group));
  return told;
}

void append_event_batch(std::string& out, double time_s, std::span<const KvEvent> events, std::uint32_t rank,
                        const KvEventEncoding& encoding) {
  Packer packer(out);
  if (encoding.format == KvEventFormat::vllm_0_32_0)
    pack_batch<MapEvents>(packer, time_s, events, rank, encoding);
  else
    pack_batch<ArrayEvents>(packer, time_s, events, rank, encoding);
}

}  // namespace quire
