// Compares with tests/golden/cache_groups.txt.xz, which contains what vLLM plans for random models (tools/record/cache_groups.py).
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <map>
#include <sstream>

#include "core/kv/cache_groups.h"
#include "support/recording.h"
#include "support/split.h"

namespace quire {
namespace {

using test::split;

std::string or_dash(const auto& value) {
  return value ? fmt::format("{}", *value) : "-";
}

// Reads the fields of a spec one after the other.
class SpecReader {
 public:
  explicit SpecReader(const std::string& text) : fields_(split(text, ':')) {}

  std::string text() { return fields_.at(next_++); }
  std::uint32_t number() { return static_cast<std::uint32_t>(std::stoul(text())); }
  std::optional<std::uint32_t> optional_number() {
    const std::string field = text();
    return field == "-" ? std::optional<std::uint32_t>() : static_cast<std::uint32_t>(std::stoul(field));
  }
  void shape(AttentionShape& shape) {
    shape.block_size = number();
    shape.num_kv_heads = number();
    shape.head_size = number();
    shape.dtype = dtype(text());
    shape.page_size_padded = optional_number();
  }
  void full(FullAttentionSpec& spec) {
    shape(spec);
    spec.head_size_v = number();
    spec.sliding_window = optional_number();
    spec.attention_chunk_size = optional_number();
  }
  MambaSpec mamba() {
    MambaSpec spec;
    spec.block_size = number();
    for (const std::string& shape : split(text(), '/')) {
      auto& dimensions = spec.shapes.emplace_back();
      for (const std::string& dimension : split(shape, 'x')) dimensions.push_back(std::stoull(dimension));
    }
    for (const std::string& bytes : split(text(), '/')) spec.dtypes.push_back(dtype(bytes));
    spec.page_size_padded = optional_number();
    spec.num_speculative_blocks = number();
    return spec;
  }
  static CacheDtype dtype(const std::string& bytes) { return {bytes, static_cast<std::uint32_t>(std::stoul(bytes))}; }

 private:
  std::vector<std::string> fields_;
  std::size_t next_ = 0;
};

template <class Spec>
LayerKvSpec shaped(SpecReader& in, std::uint32_t Spec::* size) {
  Spec spec;
  in.shape(spec);
  spec.*size = in.number();
  return spec;
}

LayerKvSpec spec_from(const std::string& text) {
  SpecReader in(text);
  const std::string kind = in.text();
  if (kind == "full") {
    FullAttentionSpec spec;
    in.full(spec);
    return spec;
  }
  if (kind == "mla") {
    MlaAttentionSpec spec;
    in.full(spec);
    const std::string dtype = in.text();
    spec.cache_dtype = dtype == "-" ? std::optional<std::string>() : dtype;
    return spec;
  }
  if (kind == "sink") {
    SinkFullAttentionSpec spec;
    in.full(spec);
    spec.sink_len = in.number();
    return spec;
  }
  if (kind == "window") return shaped(in, &SlidingWindowSpec::sliding_window);
  if (kind == "chunk") return shaped(in, &ChunkedLocalSpec::attention_chunk_size);
  if (kind == "mamba") return in.mamba();
  if (kind == "cross") {
    CrossAttentionSpec spec;
    in.shape(spec);
    return spec;
  }
  EncoderOnlySpec spec;
  in.shape(spec);
  return spec;
}

std::string text_of(const AttentionShape& shape) {
  return fmt::format("{}:{}:{}:{}:{}", shape.block_size, shape.num_kv_heads, shape.head_size, shape.dtype.bytes,
                     or_dash(shape.page_size_padded));
}

std::string text_of_full(const FullAttentionSpec& spec) {
  return fmt::format("{}:{}:{}:{}", text_of(spec), spec.head_size_v == 0 ? spec.head_size : spec.head_size_v, or_dash(spec.sliding_window),
                     or_dash(spec.attention_chunk_size));
}

struct SpecText {
  std::string operator()(const FullAttentionSpec& spec) const { return "full:" + text_of_full(spec); }
  std::string operator()(const MlaAttentionSpec& spec) const { return "mla:" + text_of_full(spec) + ":" + or_dash(spec.cache_dtype); }
  std::string operator()(const SinkFullAttentionSpec& spec) const { return fmt::format("sink:{}:{}", text_of_full(spec), spec.sink_len); }
  std::string operator()(const SlidingWindowSpec& spec) const { return fmt::format("window:{}:{}", text_of(spec), spec.sliding_window); }
  std::string operator()(const ChunkedLocalSpec& spec) const {
    return fmt::format("chunk:{}:{}", text_of(spec), spec.attention_chunk_size);
  }
  std::string operator()(const CrossAttentionSpec& spec) const { return "cross:" + text_of(spec); }
  std::string operator()(const EncoderOnlySpec& spec) const { return "encoder:" + text_of(spec); }
  std::string operator()(const MambaSpec& spec) const {
    std::string shapes, dtypes;
    for (std::size_t i = 0; i < spec.shapes.size(); ++i) {
      shapes += (i == 0 ? "" : "/") + fmt::format("{}", fmt::join(spec.shapes[i], "x"));
      dtypes += (i == 0 ? "" : "/") + spec.dtypes[i].name;
    }
    return fmt::format("mamba:{}:{}:{}:{}:{}", spec.block_size, shapes, dtypes, or_dash(spec.page_size_padded),
                       spec.num_speculative_blocks);
  }
};

struct GoldenCase {
  KvMemoryOptions options;
  std::vector<LayerSpecs> workers;
  std::vector<std::int64_t> memory;
  std::vector<std::string> results;
};

KvMemoryOptions options_from(const std::string& line) {
  std::map<std::string, std::string> fields;
  for (const std::string& field : split(line, ' ')) fields[field.substr(0, field.find('='))] = field.substr(field.find('=') + 1);
  const auto number = [&](const std::string& key) { return static_cast<std::uint32_t>(std::stoul(fields.at(key))); };
  KvMemoryOptions options;
  options.max_model_len = number("max_model_len");
  options.auto_fit_max_model_len = number("auto_fit") == 1;
  options.max_num_batched_tokens = number("batched");
  options.max_num_encoder_input_tokens = number("encoder");
  options.mamba_cache_mode = fields["mamba"] == "all"     ? MambaCacheMode::all
                             : fields["mamba"] == "align" ? MambaCacheMode::align
                                                          : MambaCacheMode::none;
  options.dcp_world_size = number("dcp");
  options.pcp_world_size = number("pcp");
  if (number("override") != 0) options.num_blocks_override = number("override");
  options.disable_hybrid_kv_cache_manager = number("unify") == 1;
  return options;
}

std::vector<GoldenCase> golden_cases() {
  std::istringstream file = test::open_recording("tests/golden/cache_groups.txt.xz");
  std::vector<GoldenCase> cases;
  for (std::string line; std::getline(file, line);) {
    const auto parts = split(line, ' ');
    if (parts[0] == "case") {
      cases.emplace_back().options = options_from(line);
    } else if (parts[0] == "worker") {
      cases.back().memory.push_back(std::stoll(parts[1]));
      LayerSpecs& layers = cases.back().workers.emplace_back();
      for (std::size_t i = 2; i < parts.size(); ++i) {
        const auto equals = parts[i].find('=');
        layers.push_back({parts[i].substr(0, equals), spec_from(parts[i].substr(equals + 1))});
      }
    } else {
      cases.back().results.push_back(line);
    }
  }
  return cases;
}

std::vector<std::string> results_of(const GoldenCase& given) {
  const auto plan = plan_kv_cache(given.workers, given.memory, given.options);
  if (!plan) {
    EXPECT_FALSE(plan.error().field.empty());
    EXPECT_FALSE(plan.error().remedy.empty());
    return {"error"};
  }
  KvMemoryOptions options = given.options;
  options.max_model_len = plan->max_model_len;
  const KvCacheConfig& first = plan->workers.front();
  std::string fits = fmt::format("{}", first.groups.empty() ? 0.0 : max_concurrency(first, options));
  fits += fits.find('.') == std::string::npos ? ".0" : "";
  std::vector<std::string> results{fmt::format("length {} {}", plan->max_model_len, fits)};
  for (const KvCacheConfig& config : plan->workers) {
    results.push_back(fmt::format("blocks {}", config.num_blocks));
    for (const KvCacheGroup& group : config.groups) {
      std::string line = fmt::format("group {}", fmt::join(group.layer_names, ","));
      for (const LayerKvSpec& spec : group.layer_specs.empty() ? std::vector{group.spec} : group.layer_specs)
        line += " " + std::visit(SpecText(), spec);
      results.push_back(line);
    }
    for (const KvCacheTensor& tensor : config.tensors)
      results.push_back(fmt::format("tensor {} {}", tensor.size, fmt::join(tensor.shared_by, ",")));
  }
  return results;
}

TEST(CachePlan, EqualsTheRecordedPlansOfVllmForRandomModels) {
  const auto cases = golden_cases();
  ASSERT_GE(cases.size(), 200U);
  for (std::size_t i = 0; i < cases.size(); ++i) EXPECT_EQ(results_of(cases[i]), cases[i].results) << "case " << i << " of the record";
}

}  // namespace
}  // namespace quire
