#include "engine/publish/kv_event_bytes.h"

#include <algorithm>
#include <bit>
#include <concepts>
#include <string_view>

namespace quire {
namespace {

// msgpack, as far as events need it: https://github.com/msgpack/msgpack/blob/master/spec.md. Integers are written in their shortest form.
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
  // So many values follow.
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

void pack_extra_keys(Packer& out, const BlockStored& event) {
  if (!event.extra_keys) return out.nil();
  out.array(event.extra_keys->size());
  for (const auto& keys : *event.extra_keys) {
    if (!keys) {
      out.nil();
      continue;
    }
    out.array(keys->size());
    for (const KvExtraKey& key : *keys) pack_key(out, key);
  }
}

void pack(Packer& out, const BlockStored& event, KvHashForm form) {
  out.array(9);
  out.text("BlockStored");
  out.array(event.block_hashes.size());
  for (const KvEventHash& hash : event.block_hashes) pack_hash(out, hash, form);
  event.parent_block_hash ? pack_hash(out, *event.parent_block_hash, form) : out.nil();
  out.array(event.token_ids.size());
  for (const TokenId token : event.token_ids) out.signed_integer(token);
  out.integer(event.block_size);
  event.lora_id ? out.signed_integer(*event.lora_id) : out.nil();
  out.text(event.medium);
  event.lora_name ? out.text(*event.lora_name) : out.nil();
  pack_extra_keys(out, event);
}

void pack(Packer& out, const BlockRemoved& event, KvHashForm form) {
  out.array(3);
  out.text("BlockRemoved");
  out.array(1);
  pack_hash(out, event.block_hash, form);
  out.text(event.medium);
}

void pack(Packer& out, const AllBlocksCleared& /*event*/, KvHashForm /*form*/) {
  out.array(1);
  out.text("AllBlocksCleared");
}

}  // namespace

void append_event_batch(std::string& out, double time_s, std::span<const KvEvent> events, std::uint32_t rank, KvHashForm form) {
  Packer packer(out);
  packer.array(3);
  packer.real(time_s);
  packer.array(events.size());
  for (const KvEvent& event : events) std::visit([&](const auto& what) { pack(packer, what, form); }, event);
  packer.integer(rank);
}

}  // namespace quire
