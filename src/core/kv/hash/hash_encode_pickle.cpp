// Encodes pickle, protocol 5 (PEP 3154, PEP 574, Modules/_pickle.c). Opcodes are in frames of at least 64 KiB; a frame ends before an
// object, never within an object. MEMOIZE follows every string, byte string and non-empty tuple. The bytes equal the output of CPython's C
// pickler, including the starts of frames and the memoized strings, because vLLM digests them. Called for each block; reuses memory.
#include <algorithm>

#include "base/check.h"
#include "core/kv/hash/hash_encode.h"

namespace quire {
namespace {

constexpr std::size_t kFrameHeader = 9;
constexpr std::size_t kFrameTarget = 64 * 1024;
constexpr std::size_t kLongestInteger = 5;  // bytes of an integer that fits 32 bits
constexpr std::size_t kFrameMin = 4;        // a shorter last frame has no header

namespace op {
constexpr std::uint8_t proto = 0x80, frame = 0x95, memoize = 0x94, stop = '.', none = 'N';
constexpr std::uint8_t bin_int = 'J', bin_int1 = 'K', bin_int2 = 'M', long1 = 0x8A;
constexpr std::uint8_t short_bytes = 'C', short_unicode = 0x8C, unicode = 'X', get = 'h';
constexpr std::uint8_t empty_tuple = ')', tuple1 = 0x85, mark = '(', tuple = 't';
}  // namespace op

// Returns whether the UTF-8 text is one character below U+0100.
bool is_latin1_character(std::string_view text) {
  const auto byte = [&](std::size_t i) { return static_cast<std::uint8_t>(text[i]); };
  return (text.size() == 1 && byte(0) < 0x80) || (text.size() == 2 && (byte(0) == 0xC2 || byte(0) == 0xC3));
}

class PickleWriter {
 public:
  explicit PickleWriter(HashBytes& bytes) : out_(bytes) {
    out_.clear();
    out_.put(op::proto);
    out_.put(5);
  }

  void integers(std::span<const std::int32_t> values) {
    while (!values.empty()) {
      begin_object();
      open_frame();
      QUIRE_CHECK(frame_size() < kFrameTarget, "a full frame is closed before the next object");
      // Writes as many integers as fit into the frame even if each takes the maximum of 5 bytes.
      const std::size_t room = kFrameTarget - 1 - frame_size();
      const std::size_t count = std::clamp<std::size_t>(room / kLongestInteger, 1, values.size());
      for (std::int32_t value : values.first(count)) put_integer(value);
      values = values.subspan(count);
    }
  }
  // Writes a distance between tokens of a request: 32 bits and a sign.
  void integer(std::int64_t value) {
    if (value >= INT32_MIN && value <= INT32_MAX) {
      const auto narrow = static_cast<std::int32_t>(value);
      integers({&narrow, 1});
    } else {
      begin_object();
      long_integer(value);
    }
  }

  void none() {
    begin_object();
    opcode(op::none);
  }

  // Writes a byte string of at most 255 bytes, such as a digest.
  void byte_string(std::span<const std::uint8_t> value) {
    QUIRE_CHECK(value.size() <= 0xFF, "the length of a byte string fits into one byte");
    begin_object();
    opcode(op::short_bytes);
    out_.put(static_cast<std::uint8_t>(value.size()));
    out_.put(value);
    memoize();
  }

  void text(std::string_view value) {
    begin_object();
    if (is_latin1_character(value) && reuse(value)) return;
    // A string of at least the size of a frame is written between two frames.
    const bool apart = value.size() >= kFrameTarget;
    if (apart) close_frame();
    if (value.size() <= 0xFF) {
      opcode(op::short_unicode);
      out_.put(static_cast<std::uint8_t>(value.size()));
    } else {
      apart ? out_.put(op::unicode) : opcode(op::unicode);
      out_.put(little_endian<4>(value.size()));
    }
    out_.put(bytes_of(value));
    memoize();
  }

  // Writes a string that is the same Python object each time: the first call writes the string, later calls write a reference to it.
  void constant(std::string_view value) {
    QUIRE_CHECK(value.size() <= 0xFF, "the length of a constant fits into one byte");
    begin_object();
    if (reuse(value)) return;
    opcode(op::short_unicode);
    out_.put(static_cast<std::uint8_t>(value.size()));
    out_.put(bytes_of(value));
    memoize();
  }

  void begin_tuple(std::size_t size) {
    begin_object();
    ++num_open_tuples_;
    if (size > 3) opcode(op::mark);
  }
  void end_tuple(std::size_t size) {
    QUIRE_CHECK(num_open_tuples_ > 0, "a tuple that ends was begun");
    --num_open_tuples_;
    if (size == 0) {
      opcode(op::empty_tuple);  // one shared object, never memoized
      return;
    }
    opcode(size > 3 ? op::tuple : static_cast<std::uint8_t>(op::tuple1 + size - 1));
    memoize();
  }

  void finish() {
    QUIRE_CHECK(num_open_tuples_ == 0, "each tuple that was begun has ended");
    opcode(op::stop);
    close_frame();
  }

 private:
  [[nodiscard]] std::size_t frame_size() const { return out_.size() - frame_ - kFrameHeader; }
  void begin_object() {
    if (frame_ != 0 && frame_size() >= kFrameTarget) close_frame();
  }
  void open_frame() {
    if (frame_ == 0) {
      frame_ = out_.size();
      out_.put(std::array<std::uint8_t, kFrameHeader>{op::frame});
    }
  }
  void opcode(std::uint8_t code) {
    open_frame();
    out_.put(code);
  }
  // Writes the integer with 1 or 2 bytes if it is not negative and fits, else with 4 bytes. Does not branch.
  void put_integer(std::int32_t value) {
    constexpr std::array<std::uint8_t, 3> kOpcodes{op::bin_int1, op::bin_int2, op::bin_int};
    constexpr std::array<std::uint8_t, 3> kNumBytes{1, 2, 4};
    const auto bits = static_cast<std::uint32_t>(value);
    const std::size_t size = std::size_t{bits > 0xFF} + std::size_t{bits > 0xFFFF};
    out_.put_low_bytes(std::uint64_t{bits} << 8 | kOpcodes[size], std::size_t{1} + kNumBytes[size]);
  }
  void close_frame() {
    if (frame_ == 0) return;
    QUIRE_CHECK(out_.size() >= frame_ + kFrameHeader, "an open frame has a header");
    const std::size_t length = frame_size();
    if (length >= kFrameMin)
      out_.overwrite(frame_ + 1, little_endian<8>(length));
    else
      out_.erase(frame_, kFrameHeader);
    frame_ = 0;
  }
  void memoize() {
    opcode(op::memoize);
    ++memo_size_;
  }
  bool reuse(std::string_view value) {
    for (std::size_t i = 0; i < num_characters_; ++i) {
      if (characters_[i].text == value) {
        opcode(op::get);
        out_.put(characters_[i].memo);
        return true;
      }
    }
    if (num_characters_ < characters_.size() && memo_size_ <= 0xFF)
      characters_[num_characters_++] = {value, static_cast<std::uint8_t>(memo_size_)};
    return false;
  }
  // Writes the shortest two's complement encoding. Each distance that needs more than 32 bits takes 5 bytes.
  void long_integer(std::int64_t value) {
    QUIRE_CHECK(value < std::int64_t{1} << 39 && value >= -(std::int64_t{1} << 39), "the value fits into five bytes");
    constexpr std::size_t size = 5;
    opcode(op::long1);
    out_.put(static_cast<std::uint8_t>(size));
    const auto bytes = little_endian<8>(static_cast<std::uint64_t>(value));
    out_.put(std::span(bytes).first(size));
  }

  struct Character {
    std::string_view text;
    std::uint8_t memo = 0;
  };

  HashBytes& out_;
  std::size_t frame_ = 0;  // start of the open frame; 0 if no frame is open
  std::size_t memo_size_ = 0;
  std::size_t num_open_tuples_ = 0;
  // Constants and strings of one Latin-1 character that were written, with their memo index. CPython has one object for each of them, so
  // pickle writes a reference when one repeats. Only the first 16 strings of a block are stored; real keys have fewer.
  std::array<Character, 16> characters_;
  std::size_t num_characters_ = 0;
};

void put_tagged_keys(const HashInput& input, PickleWriter& out) {
  if (!input.lora_name.empty()) {
    out.begin_tuple(3);
    out.constant("lora");
    out.text(input.lora_name);
    out.text(input.lora_path);
    out.end_tuple(3);
  }
  for (const MultimodalFeature& feature : input.multimodal) {
    if (input.counts(feature)) {
      out.begin_tuple(3);
      out.constant("mm");
      out.text(feature.identifier);
      out.integer(input.placed(feature));
      out.end_tuple(3);
    }
  }
  if (!input.cache_salt.empty()) {
    out.begin_tuple(2);
    out.constant("cache_salt");
    out.text(input.cache_salt);
    out.end_tuple(2);
  }
  if (input.embeds_digest) {
    out.begin_tuple(2);
    out.constant("prompt_embeds");
    out.byte_string(*input.embeds_digest);
    out.end_tuple(2);
  }
}

void put_extra_keys(const HashInput& input, PickleWriter& out) {
  const std::size_t num_keys = input.num_extra_keys();
  if (num_keys == 0) {
    out.none();
    return;
  }
  out.begin_tuple(num_keys);
  if (input.tagged_keys) {
    put_tagged_keys(input, out);
    out.end_tuple(num_keys);
    return;
  }
  if (!input.lora_name.empty()) out.text(input.lora_name);
  for (const MultimodalFeature& feature : input.multimodal) {
    if (input.counts(feature)) {
      out.begin_tuple(2);
      out.text(feature.identifier);
      out.integer(input.placed(feature));
      out.end_tuple(2);
    }
  }
  if (!input.cache_salt.empty()) out.text(input.cache_salt);
  if (input.embeds_digest) out.byte_string(*input.embeds_digest);
  out.end_tuple(num_keys);
}

}  // namespace

void encode_pickle(std::span<const std::uint8_t> parent, const HashInput& input, HashBytes& out) {
  PickleWriter writer(out);
  writer.begin_tuple(3);
  writer.byte_string(parent);
  writer.begin_tuple(input.tokens.size());
  writer.integers(input.tokens);
  writer.end_tuple(input.tokens.size());
  put_extra_keys(input, writer);
  writer.end_tuple(3);
  writer.finish();
}

void encode_pickle(std::string_view text, HashBytes& out) {
  PickleWriter writer(out);
  writer.text(text);
  writer.finish();
}

}  // namespace quire
