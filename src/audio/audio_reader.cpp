// Reads audio files with libsndfile. May be called by any number of threads that read request bodies: each call has a separate decoder and
// resampler. A file is decoded, mixed and resampled in pieces, so that only the file and the resulting samples are in memory.
#include "audio/audio_reader.h"

#include <fmt/format.h>
#include <sndfile.h>
#include <soxr.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>
#include <memory>
#include <span>

#include "audio/log_mel.h"

namespace quire {
namespace {

constexpr int kMaxChannels = 8;
constexpr int kMinRate = 1000, kMaxRate = 384'000;
constexpr std::size_t kFramesPerRead = 4096;
constexpr float kMaxSampleMagnitude = 1e6F;  // usual samples are below 1; sums of samples up to this limit stay finite

std::unexpected<Error> refuse(ErrorCode code, std::string problem, std::string remedy) {
  return fail(code, "file", std::move(problem), std::move(remedy));
}

// Returns whether the first bytes belong to a supported kind of file. Only such files are passed to the library.
bool is_known(std::string_view file) {
  const auto byte = [&](std::size_t i) { return static_cast<unsigned char>(file[i]); };
  if (file.size() < 12) return false;
  if (file.starts_with("RIFF") || file.starts_with("RF64")) return file.substr(8, 4) == "WAVE";
  const bool is_mpeg = byte(0) == 0xFF && (byte(1) & 0xE0) == 0xE0;
  return file.starts_with("fLaC") || file.starts_with("OggS") || file.starts_with("ID3") || is_mpeg;
}

// A file in memory, for the library's file callbacks.
struct MemoryFile {
  std::string_view bytes;
  sf_count_t at = 0;

  [[nodiscard]] sf_count_t size() const { return static_cast<sf_count_t>(bytes.size()); }
};

sf_count_t size_of(void* file) {
  return static_cast<MemoryFile*>(file)->size();
}

sf_count_t seek_file(sf_count_t offset, int whence, void* context) {
  MemoryFile& file = *static_cast<MemoryFile*>(context);
  const sf_count_t base = whence == SEEK_SET ? 0 : whence == SEEK_CUR ? file.at : file.size();
  // A damaged file may ask for any offset.
  if (offset < -base || offset > file.size() - base) return -1;
  return file.at = base + offset;
}

sf_count_t read_file(void* out, sf_count_t count, void* context) {
  MemoryFile& file = *static_cast<MemoryFile*>(context);
  const sf_count_t given = std::clamp<sf_count_t>(count, 0, file.size() - file.at);
  if (given > 0) std::memcpy(out, file.bytes.data() + file.at, static_cast<std::size_t>(given));
  file.at += given;
  return given;
}

sf_count_t write_nothing(const void* /*bytes*/, sf_count_t /*count*/, void* /*context*/) {
  return 0;
}

sf_count_t position_of(void* file) {
  return static_cast<MemoryFile*>(file)->at;
}

struct CloseFile {
  void operator()(SNDFILE* file) const { sf_close(file); }
};
struct DeleteResampler {
  void operator()(soxr* resampler) const { soxr_delete(resampler); }
};

// Resamples pieces of one sample rate to kAudioSampleRate.
class Resampler {
 public:
  Resampler(int rate, std::vector<float>& out) : out_(out) {
    if (rate == static_cast<int>(kAudioSampleRate)) return;
    const soxr_io_spec_t io = soxr_io_spec(SOXR_FLOAT32_I, SOXR_FLOAT32_I);
    const soxr_quality_spec_t quality = soxr_quality_spec(SOXR_HQ, 0);
    const soxr_runtime_spec_t runtime = soxr_runtime_spec(1);
    soxr_error_t error = nullptr;
    resampler_.reset(soxr_create(rate, kAudioSampleRate, 1, &error, &io, &quality, &runtime));
    failed_ = resampler_ == nullptr || error != nullptr;
  }

  [[nodiscard]] bool failed() const { return failed_; }
  // Resamples `samples`. An empty span marks the end and flushes the resampler.
  void put(std::span<const float> samples) {
    if (failed_) return;
    if (resampler_ == nullptr) {
      out_.insert(out_.end(), samples.begin(), samples.end());
      return;
    }
    const bool is_end = samples.empty();
    std::array<float, kFramesPerRead> made;
    for (bool goes_on = true; goes_on;) {
      std::size_t taken = 0, given = 0;
      const float* in = is_end ? nullptr : samples.data();
      if (soxr_process(resampler_.get(), in, samples.size(), &taken, made.data(), made.size(), &given) != nullptr) {
        failed_ = true;
        return;
      }
      out_.insert(out_.end(), made.begin(), made.begin() + static_cast<std::ptrdiff_t>(given));
      samples = samples.subspan(taken);
      goes_on = is_end ? given > 0 : !samples.empty() || given == made.size();
    }
  }

 private:
  std::vector<float>& out_;
  std::unique_ptr<soxr, DeleteResampler> resampler_;
  bool failed_ = false;
};

Result<void> check_format(const SF_INFO& info, double max_seconds) {
  if (info.channels < 1 || info.channels > kMaxChannels)
    return refuse(ErrorCode::invalid_argument, fmt::format("has {} channels", info.channels),
                  fmt::format("send audio with 1 to {} channels", kMaxChannels));
  if (info.samplerate < kMinRate || info.samplerate > kMaxRate) {
    return refuse(ErrorCode::invalid_argument, fmt::format("has a sample rate of {} Hz", info.samplerate),
                  fmt::format("send audio with a sample rate of {} to {} Hz", kMinRate, kMaxRate));
  }
  // The decoded length decides: a header may be wrong or may not state the length.
  const double seconds = static_cast<double>(info.frames) / info.samplerate;
  if (info.frames < SF_COUNT_MAX && seconds > max_seconds)
    return refuse(ErrorCode::too_large, fmt::format("is {:.0f} s long", seconds),
                  fmt::format("send at most {:.0f} s of audio", max_seconds));
  return {};
}

// Writes the mean of all channels to the first samples. Returns false if a sample is NaN, infinite or far too large.
bool mix(std::span<float> samples, std::size_t channels) {
  const std::size_t frames = samples.size() / channels;
  const float share = 1.0F / static_cast<float>(channels);
  bool is_sane = true;
  for (std::size_t i = 0; i < frames; ++i) {
    float sum = 0.0F;
    for (std::size_t c = 0; c < channels; ++c) sum += samples[i * channels + c];
    samples[i] = channels == 1 ? sum : sum * share;
    is_sane = is_sane && std::fabs(samples[i]) <= kMaxSampleMagnitude;
  }
  return is_sane;
}

}  // namespace

Result<void> check_audio_reader() {
  return {};
}

Result<std::vector<float>> read_audio(std::string_view file, double max_seconds) {
  if (!is_known(file))
    return refuse(ErrorCode::invalid_argument, "is not audio in a supported format", "send WAV, FLAC, MP3 or Ogg (Vorbis or Opus)");
  MemoryFile memory{file};
  SF_VIRTUAL_IO io{size_of, seek_file, read_file, write_nothing, position_of};
  SF_INFO info{};
  const std::unique_ptr<SNDFILE, CloseFile> decoder(sf_open_virtual(&io, SFM_READ, &info, &memory));
  const auto broken = [&] {
    return refuse(ErrorCode::invalid_argument, fmt::format("cannot be decoded: {}", sf_strerror(decoder.get())), "send the complete file");
  };
  if (decoder == nullptr) return broken();
  if (auto valid = check_format(info, max_seconds); !valid) return std::unexpected(std::move(valid.error()));
  const auto channels = static_cast<std::size_t>(info.channels);
  std::vector<float> samples, piece(kFramesPerRead * channels);
  Resampler resampler(info.samplerate, samples);
  const auto most = static_cast<std::size_t>(max_seconds * kAudioSampleRate);
  for (;;) {
    const sf_count_t frames = sf_readf_float(decoder.get(), piece.data(), kFramesPerRead);
    if (frames <= 0) break;
    const std::span<float> read(piece.data(), static_cast<std::size_t>(frames) * channels);
    if (!mix(read, channels))
      return refuse(ErrorCode::invalid_argument, "contains samples that are NaN, Inf or out of range", "send samples between -1 and 1");
    resampler.put(read.first(static_cast<std::size_t>(frames)));
    if (samples.size() > most)
      return refuse(ErrorCode::too_large, "is too long", fmt::format("send at most {:.0f} s of audio", max_seconds));
  }
  if (sf_error(decoder.get()) != SF_ERR_NO_ERROR) return broken();
  resampler.put({});
  if (resampler.failed()) return refuse(ErrorCode::invalid_argument, "cannot be resampled", "send audio with another sample rate");
  if (samples.size() > most) samples.resize(most);
  if (samples.empty()) return refuse(ErrorCode::invalid_argument, "contains no samples", "send audio");
  return samples;
}

}  // namespace quire
