#pragma once
// Makes a WAV file of 32-bit floats; its header may be inconsistent.
#include <cstdint>
#include <cstring>
#include <string>
#include <vector>

namespace quire {

inline std::string wave_file(const std::vector<float>& samples, std::uint32_t rate, std::uint16_t channels) {
  const auto put = [](std::string& out, auto value) {
    char raw[sizeof(value)];
    std::memcpy(raw, &value, sizeof(value));
    out.append(raw, sizeof(value));
  };
  const auto bytes = static_cast<std::uint32_t>(samples.size() * sizeof(float));
  std::string file = "RIFF";
  put(file, std::uint32_t{36} + bytes);
  file += "WAVEfmt ";
  put(file, std::uint32_t{16});
  put(file, std::uint16_t{3});  // format: floats
  put(file, channels);
  put(file, rate);
  put(file, static_cast<std::uint32_t>(rate * channels * sizeof(float)));
  put(file, static_cast<std::uint16_t>(channels * sizeof(float)));
  put(file, std::uint16_t{32});
  file += "data";
  put(file, bytes);
  for (const float sample : samples) put(file, sample);
  return file;
}

}  // namespace quire
