// Tests quantised Hugging Face folders: their form in memory, bits that do not depend on other rows, and folders that contradict
// themselves.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "runtime/model/logit_record.h"
#include "runtime/model/rig.h"
#include "runtime/model/tiny_adapter.h"
#include "runtime/model/weights/adapter.h"
#include "runtime/model/weights/model_file.h"
#include "runtime/model/weights/quantised_tensors.h"

namespace quire {
namespace {

using tiny::LogitCase;

class QuantisedFolders : public testing::Test {
 protected:
  static const LogitCase& case_named(const std::string& name) {
    static const tiny::LogitRecord record = tiny::read_logit_record("quantised_");
    const auto found = std::ranges::find(record.cases, name, &LogitCase::name);
    EXPECT_NE(found, record.cases.end()) << name;
    return *found;
  }
  [[nodiscard]] std::string write(const LogitCase& c) { return tiny::write_model(c, folder_); }
  [[nodiscard]] std::string write(const std::string& name) { return write(case_named(name)); }
  [[nodiscard]] ModelInfo info_of(const std::string& name) {
    const auto info = inspect(write(name));
    EXPECT_TRUE(info) << (info ? "" : info.error().to_string());
    return info.value_or(ModelInfo{});
  }
  [[nodiscard]] std::uint64_t loaded_bytes(const std::string& path) {
    const auto model = load_model(path, {.pool = &pool_});
    EXPECT_TRUE(model) << (model ? "" : model.error().to_string());
    return model ? (*model)->weight_bytes() : 0;
  }
  [[nodiscard]] Error load(const std::string& path) {
    const auto model = load_model(path, {.pool = &pool_});
    EXPECT_FALSE(model) << "loaded a broken model";
    return model ? Error{} : model.error();
  }
  // Loads a valid folder after one member of quantization_config was set.
  [[nodiscard]] Error load_with(const std::string& name, const std::string& key, const boost::json::value& value) {
    LogitCase c = case_named(name);
    c.config.as_object()["quantization_config"].as_object()[key] = value;
    return load(write(c));
  }
  // Loads a valid folder after its tensors were changed.
  [[nodiscard]] Error load_changed(const std::string& name, const std::function<void(std::vector<tiny::Tensor>&)>& change) {
    const LogitCase& c = case_named(name);
    const auto config = config_from_hf(JsonRef(c.config, c.name));
    auto tensors = tiny::quantise(tiny::make_tensors(*config, false, "BF16"), c.parts, c.left);
    change(tensors);
    const std::string path = folder_.file("changed");
    tiny::write_hf_folder(path, c.config, tensors);
    return load(path);
  }
  // Returns this part of the first matrix.
  static tiny::Tensor& part(std::vector<tiny::Tensor>& tensors, const std::string& end) {
    return *std::ranges::find(tensors, "model.layers.0.self_attn.q_proj." + end, &tiny::Tensor::name);
  }
  static std::string field(const std::string& end) { return "model.layers.0.self_attn.q_proj." + end; }

  tiny::TempFolder folder_;
  ThreadPool pool_{2};
};

const WeightFormatSummary* held_as(const ModelInfo& info, const std::string& form) {
  const auto found = std::ranges::find(info.held, form, &WeightFormatSummary::form);
  return found == info.held.end() ? nullptr : &*found;
}

TEST_F(QuantisedFolders, InspectReportsTheirFormInMemory) {
  struct Expected {
    const char *name, *form;
    std::uint32_t matrices;
    const char *quantisation, *types;
  };
  const Expected all[]{
      {"gptq4_128", "4 bits", 14, "GPTQ, 4 bits in groups of 128", "BF16 7, INT4 14"},
      {"gptq4_order", "4 bits", 14, "GPTQ, 4 bits in groups of 32, ordered by activations", "INT4 14"},
      {"gptq4_16", "6 bits", 14, "GPTQ, 4 bits with zero points in groups of 16", "INT4 14"},
      {"gptq8_128", "8 bits", 14, "GPTQ, 8 bits in groups of 128", "INT8 14"},
      {"awq_64", "4 bits", 9, "AWQ, 4 bits with zero points in groups of 64", "INT4 9"},
      {"packed4_row", "4 bits", 14, "compressed-tensors, 4 bits", "INT4 14"},
      {"w8a8_row", "8 bits", 14, "compressed-tensors, 8 bits", "INT8 14"},
      {"fp8_blocks", "bf16", 16, "fp8, floats of 8 bits", "FP8 14"},
      {"nvfp4", "6 bits", 14, "compressed-tensors, floats of 4 bits in groups of 16", "FP4 14"},
      {"mxfp4", "4 bits", 14, "compressed-tensors, floats of 4 bits in groups of 32", "FP4 14"},
      {"gptq4_experts", "4 bits", 32, "GPTQ, 4 bits in groups of 32", "INT4 32"},
      {"gptq4_experts_order", "f32", 24, "GPTQ, 4 bits in groups of 32, ordered by activations", "INT4 32"},
  };
  for (const Expected& expected : all) {
    SCOPED_TRACE(expected.name);
    const ModelInfo info = info_of(expected.name);
    EXPECT_EQ(info.quantisation, expected.quantisation);
    EXPECT_NE(info.weight_types.find(std::string_view(expected.types).substr(expected.types[0] == 'B' ? 8 : 0)), std::string::npos)
        << info.weight_types;
    const WeightFormatSummary* held = held_as(info, expected.form);
    ASSERT_NE(held, nullptr);
    EXPECT_EQ(held->count, expected.matrices);
    EXPECT_EQ(held->multiplies_integers, std::string_view(expected.form).ends_with("bits"));
    // The reported bytes equal the used bytes, except for scales that are wider than usual.
    const auto bytes = static_cast<double>(loaded_bytes(folder_.file(expected.name)));
    EXPECT_NEAR(static_cast<double>(info.weight_bytes), bytes, 0.02 * bytes);
  }
  EXPECT_NE(info_of("fp8_tensor").notes.at(1).find("bf16"), std::string::npos);
  EXPECT_NE(info_of("w8a8_row").notes.at(0).find("--activations"), std::string::npos);
  EXPECT_NE(info_of("gptq4_experts_order").notes.at(0).find("desc_act"), std::string::npos);
  EXPECT_TRUE(info_of("gptq4_order").notes.empty());
}

// The rows run in one pass over a prompt, and again in parts next to other requests.
TEST_F(QuantisedFolders, BatchingChangesNoBitForAnyOrderOfColumns) {
  for (const char* name : {"gptq4_order", "gptq4_orders", "packed4_order", "awq_128", "w8a8_row", "fp8_row"}) {
    SCOPED_TRACE(name);
    const std::string path = write(name);
    std::vector<TokenId> prompt(60);
    for (std::size_t i = 0; i < prompt.size(); ++i) prompt[i] = static_cast<TokenId>((i * 37) % 300);
    for (const ActivationMode mode : {ActivationMode::int16, ActivationMode::int8}) {
      const tiny::RigOptions options{.activations = mode, .kv = KvDtype::bf16};
      tiny::Rig alone(path, options);
      alone.give_blocks(Slot{0}, tiny::blocks_for(60, 16, 1));
      const auto expected = alone.run(prompt, {{Slot{0}, 0, 60}});
      tiny::Rig rig(path, options);
      rig.give_blocks(Slot{1}, tiny::blocks_for(60, 16, 1));
      rig.give_blocks(Slot{2}, tiny::blocks_for(60, 16, 20));
      std::vector<TokenId> both(prompt.begin(), prompt.begin() + 17);
      both.insert(both.end(), prompt.rbegin(), prompt.rbegin() + 20);
      const auto first = rig.run(both, {{Slot{1}, 0, 17}, {Slot{2}, 0, 20}});
      const auto rest = rig.run(std::span(prompt).subspan(17), {{Slot{1}, 17, 43}});
      const std::size_t cut = 17 * rig.vocab();
      EXPECT_EQ(std::memcmp(first.data(), expected.data(), cut * sizeof(float)), 0);
      EXPECT_EQ(std::memcmp(rest.data(), expected.data() + cut, rest.size() * sizeof(float)), 0);
    }
  }
}

// An adapter reads the inputs in their original order. With ordered columns it must add the same as with the weights as floats.
TEST_F(QuantisedFolders, AnAdapterAddsTheSameToOrderedColumns) {
  for (const char* name : {"gptq4_order", "gptq4_orders"}) {
    SCOPED_TRACE(name);
    const std::string path = write(name);
    const auto file = ModelFile::open(path);
    ASSERT_TRUE(file);
    std::vector<tiny::Tensor> floats;
    const auto views = file->tensors();
    for (const TensorView& view : views.value()) {
      tiny::Tensor tensor{view.name, view.type, {view.rows, view.columns}, std::string(view.data.size(), '\0')};
      if (view.num_dims == 1) tensor.shape = {view.columns};
      const auto read = [&](std::span<const std::byte> from, std::span<std::byte> to) { return file->read(from, to); };
      if (view.quantised == nullptr) {
        ASSERT_TRUE(read(view.data, std::as_writable_bytes(std::span(tensor.bytes))));
      } else {
        const auto rows = QuantisedRows::open(*view.quantised, 0, view.rows, false, read);
        ASSERT_TRUE(rows);
        tensor.type = GgmlType::f32;
        tensor.bytes.clear();
        std::vector<float> row(view.columns);
        for (std::uint64_t r = 0; r < view.rows; ++r) {
          rows->f32(r, row);
          for (const float value : row) tiny::append(tensor.bytes, value);
        }
      }
      floats.push_back(std::move(tensor));
    }
    boost::json::value config = case_named(name).config;
    config.as_object().erase("quantization_config");
    tiny::write_hf_folder(folder_.file("floats"), config, floats);
    tiny::write_adapter(folder_.file("adapter"), tiny::adapter_config(8, 16), tiny::adapter_of(file->config(), 8).all);
    const auto adapter = load_adapter(folder_.file("adapter"), file->config(), 8);
    ASSERT_TRUE(adapter) << adapter.error().to_string();
    const std::vector<TokenId> prompt{3, 1, 4, 1, 5, 9, 2, 6, 5, 3, 5, 8};
    std::vector<std::vector<float>> logits;
    for (const std::string& one : {path, folder_.file("floats")}) {
      tiny::Rig rig(one, {.max_lora_rank = 8});
      rig.give_blocks(Slot{0}, tiny::blocks_for(12, 16, 1));
      logits.push_back(rig.run(prompt, {{Slot{0}, 0, 12, adapter->get()}}));
    }
    const double deviation = tiny::standard_deviation(logits[1]);
    for (std::size_t i = 0; i < logits[0].size(); ++i) ASSERT_NEAR(logits[0][i], logits[1][i], 1e-4 * deviation);
  }
}

// Old folders have zero biases where the model has none.
TEST_F(QuantisedFolders, IgnoresZeroBiases) {
  const auto with_bias = [](const char* byte) {
    return [byte](std::vector<tiny::Tensor>& t) {
      tiny::Tensor bias{field("bias"), GgmlType::f16, {256}, std::string(512, '\0')};
      bias.bytes[77] = byte[0];
      t.push_back(bias);
    };
  };
  EXPECT_EQ(load_changed("gptq4_128", with_bias("x")).field, "'" + field("bias") + "'");
  const LogitCase& c = case_named("gptq4_128");
  auto tensors = tiny::quantise(tiny::make_tensors(*config_from_hf(JsonRef(c.config, c.name)), false, "BF16"), c.parts, c.left);
  with_bias("\0")(tensors);
  tiny::write_hf_folder(folder_.file("zero"), c.config, tensors);
  EXPECT_GT(loaded_bytes(folder_.file("zero")), 0U);
}

TEST_F(QuantisedFolders, RefuseUnsupportedConfigs) {
  const std::string at = "config.json: quantization_config.";
  const auto expect = [&](const char* name, const std::string& key, const boost::json::value& value) {
    const Error error = load_with(name, key, value);
    EXPECT_TRUE(error.field.starts_with(at + key)) << error.to_string();
    EXPECT_FALSE(error.message.empty());
    return error;
  };
  for (const char* method : {"bitsandbytes", "hqq", "aqlm", "quanto", "torchao", "modelopt", "x\ny"}) {
    const Error error = expect("gptq4_128", "quant_method", method);
    EXPECT_EQ(error.code, ErrorCode::unsupported);
    EXPECT_NE(error.remedy.find("GPTQ, AWQ"), std::string::npos);
  }
  EXPECT_EQ(expect("gptq4_128", "bits", 3).code, ErrorCode::unsupported);
  EXPECT_EQ(expect("gptq4_128", "bits", "four").code, ErrorCode::corrupt);
  EXPECT_EQ(expect("awq_128", "bits", 8).code, ErrorCode::unsupported);
  EXPECT_EQ(expect("gptq4_128", "group_size", 0).code, ErrorCode::unsupported);
  EXPECT_EQ(expect("gptq4_128", "group_size", 20).code, ErrorCode::unsupported);
  EXPECT_EQ(expect("gptq4_128", "checkpoint_format", "marlin").code, ErrorCode::unsupported);
  EXPECT_EQ(expect("gptq4_128", "pack_dtype", "int64").code, ErrorCode::unsupported);
  EXPECT_EQ(expect("gptq4_128", "dynamic", {{"+:.*down.*", {{"bits", 8}}}}).code, ErrorCode::unsupported);
  EXPECT_EQ(expect("awq_128", "version", "gemv").code, ErrorCode::unsupported);
  EXPECT_EQ(expect("packed4_128", "format", "marlin-24").code, ErrorCode::unsupported);
  EXPECT_EQ(expect("packed4_128", "transform_config", {{"R1", 1}}).code, ErrorCode::unsupported);
  EXPECT_EQ(expect("packed4_128", "sparsity_config", {{"format", "sparse-24-bitmask"}}).code, ErrorCode::unsupported);
  EXPECT_EQ(expect("packed4_128", "config_groups", boost::json::object{}).code, ErrorCode::corrupt);
  EXPECT_EQ(expect("packed4_128", "config_groups", {{"group_0", {{"weights", {{"num_bits", 3}}}}}}).code, ErrorCode::unsupported);
  EXPECT_EQ(expect("fp8_blocks", "fmt", "e5m2").code, ErrorCode::unsupported);
}

TEST_F(QuantisedFolders, RefuseTensorsThatContradictTheConfig) {
  // The tensors have the shapes of 4 bits and groups of 128, so another number of bits or another group size is an error.
  EXPECT_EQ(load_with("gptq4_128", "bits", 8).field, "model.layers.0.mlp.down_proj.scales");
  EXPECT_EQ(load_with("gptq4_128", "group_size", 64).field, "model.layers.0.mlp.down_proj.scales");
  EXPECT_EQ(load_with("gptq4_128", "group_size", 96).field, "model.layers.0.mlp.down_proj.qweight");
  EXPECT_EQ(load_with("awq_128", "group_size", 64).field, "model.layers.0.mlp.down_proj.scales");
  const boost::json::object eight{{"group_0", {{"weights", {{"num_bits", 8}, {"type", "int"}}}}}};
  EXPECT_EQ(load_with("packed4_128", "config_groups", eight).field, "model.layers.0.mlp.down_proj.weight_packed");
  LogitCase unnamed = case_named("gptq4_128");
  unnamed.config.as_object().erase("quantization_config");
  const Error none = load(write(unnamed));
  EXPECT_EQ(none.field, "config.json: quantization_config");
  EXPECT_EQ(none.code, ErrorCode::unsupported);
}

TEST_F(QuantisedFolders, ReportTheBrokenTensor) {
  using PartTensors = std::vector<tiny::Tensor>;
  const auto without = [](const std::string& end) {
    return [end](PartTensors& t) { std::erase_if(t, [&](const auto& x) { return x.name == field(end); }); };
  };
  const auto reshaped = [](const std::string& end, std::vector<std::uint64_t> shape) {
    return [=](PartTensors& t) {
      std::uint64_t count = 1;
      for (const std::uint64_t size : shape) count *= size;
      const std::size_t size = part(t, end).dtype.ends_with("32") ? 4
                               : part(t, end).dtype == "I64"      ? 8
                               : part(t, end).dtype[0] == 'I'     ? 1
                                                                  : 2;
      part(t, end).shape = shape;
      part(t, end).bytes.resize(count * size);
    };
  };
  const auto broken = [](const std::string& end, std::size_t at, const std::string& bytes) {
    return [=](PartTensors& t) { part(t, end).bytes.replace(at, bytes.size(), bytes); };
  };
  const auto expect = [&](const char* name, const std::string& end, const std::function<void(PartTensors&)>& change) {
    const Error error = load_changed(name, change);
    EXPECT_EQ(error.field, field(end)) << error.to_string();
    EXPECT_EQ(error.code, ErrorCode::corrupt) << error.to_string();
    EXPECT_FALSE(error.remedy.empty());
  };
  for (const char* end : {"qweight", "qzeros", "scales"}) expect("gptq4_128", end, without(end));
  for (const char* end : {"weight_packed", "weight_scale", "weight_shape"})
    expect("packed4_128", std::string_view(end) == "weight_packed" ? "weight" : end, without(end));
  expect("fp8_blocks", "weight", without("weight"));
  expect("w8a8_row", "weight_scale", without("weight_scale"));
  expect("gptq4_128", "qweight", reshaped("qweight", {32 * 256}));
  expect("gptq4_128", "scales", reshaped("scales", {2, 255}));
  expect("gptq4_order", "g_idx", reshaped("g_idx", {255}));
  expect("awq_128", "qzeros", reshaped("qzeros", {1, 32}));
  expect("packed4_128", "weight_scale", reshaped("weight_scale", {256, 3}));
  expect("packed4_asym_32", "weight_zero_point", reshaped("weight_zero_point", {256, 8}));
  expect("packed4_128", "weight_packed", broken("weight_shape", 8, std::string("\x08\x01", 2)));
  expect("packed4_128", "weight_shape", broken("weight_shape", 7, "\x80"));
  expect("fp8_blocks", "weight_scale_inv", reshaped("weight_scale_inv", {2, 1}));
  // Only the data show these errors.
  expect("gptq4_order", "g_idx", broken("g_idx", 40, std::string("\x08\0\0\0", 4)));
  expect("gptq4_order", "g_idx", broken("g_idx", 40, "\xFF\xFF\xFF\xFF"));
  expect("gptq4_order", "g_idx", [](PartTensors& t) { part(t, "g_idx").bytes.assign(1024, '\0'); });
  expect("gptq4_128", "scales", broken("scales", 100, std::string("\x00\x7E", 2)));
  expect("packed4_128", "weight_scale", broken("weight_scale", 100, "\x80\x7F"));
  expect("fp8_blocks", "weight_scale_inv", broken("weight_scale_inv", 4, std::string("\x00\x00\xC0\x7F", 4)));
  expect("fp8_row", "weight", broken("weight", 1000, "\x7F"));
  expect("mxfp4", "weight_scale", broken("weight_scale", 9, "\xFF"));
  expect("nvfp4", "weight_scale", broken("weight_scale", 9, "\x7F"));
  expect("nvfp4", "weight_scale", broken("weight_global_scale", 0, std::string(4, '\0')));
  expect("nvfp4", "weight_global_scale", without("weight_global_scale"));
  // The tensor has floats instead of integers.
  const Error error = load_changed("gptq4_128", [](PartTensors& t) { part(t, "qweight").dtype = "F32"; });
  EXPECT_EQ(error.field, field("qweight"));
}

// Gpt-oss stores the experts of a layer in one tensor, with the bytes of each group apart.
TEST_F(QuantisedFolders, StackedExpertsAreReadFromBlocks) {
  const std::vector<std::byte> blocks(3 * 4 * 2 * 16, std::byte{0x2F});
  std::vector<std::byte> scales(3 * 4 * 2, std::byte{127});
  scales[2 * 7] = std::byte{130};
  const std::vector<SafetensorsTensor> tensors{{"layer.gate_up_proj_blocks", "U8", {3, 4, 2, 16}, blocks},
                                               {"layer.gate_up_proj_scales", "U8", {3, 4, 2}, scales}};
  const auto copy = [](std::span<const std::byte> part, std::span<std::byte> out) -> Result<void> {
    std::ranges::copy(part, out.begin());
    return {};
  };
  const CheckpointScheme scheme{.method = CheckpointMethod::mxfp4, .weights = {{.bits = 4, .is_float = true, .group = 32}}};
  const auto views = assemble_tensors(scheme, std::vector{&tensors[0], &tensors[1]}, copy);
  ASSERT_TRUE(views) << views.error().to_string();
  ASSERT_EQ(views->size(), 1U);
  EXPECT_EQ(views->front().name, "layer.gate_up_proj");
  EXPECT_EQ(views->front().rows, 12U);
  const auto rows = QuantisedRows::open(*views->front().quantised, 4, 4, false, copy);
  ASSERT_TRUE(rows) << rows.error().to_string();
  ASSERT_EQ(rows->format(), UnpackedFormat::q4_table);
  std::vector<std::uint8_t> codes(64);
  std::vector<float> row_scales(2), minimums(2);
  rows->q4(3, {codes, row_scales, minimums});
  EXPECT_EQ(row_scales, (std::vector<float>{4.0F, 0.5F}));
  EXPECT_EQ(rows->table()[codes[0]], 128 - 12);  // -6, doubled
  EXPECT_EQ(rows->table()[codes[1]], 128 + 2);
  const auto alone = assemble_tensors(scheme, std::vector{&tensors[0]}, copy);
  ASSERT_FALSE(alone);
  EXPECT_EQ(alone.error().field, "layer.gate_up_proj_scales");
}

// A matrix that the scheme ignores must be present unquantised. A matrix that the model does not have is refused, as in any folder.
TEST_F(QuantisedFolders, RefuseAMatrixWithTheWrongShape) {
  const Error error = load_changed("gptq4_128", [](std::vector<tiny::Tensor>& t) {
    part(t, "qweight").shape = {16, 256};
    part(t, "qweight").bytes.resize(16UL * 256 * 4);
    part(t, "qzeros").shape = {1, 32};
    part(t, "qzeros").bytes.resize(32UL * 4);
    part(t, "scales").shape = {1, 256};
    part(t, "scales").bytes.resize(512);
  });
  EXPECT_EQ(error.field, field("weight"));
  EXPECT_NE(error.message.find("[256, 128]"), std::string::npos) << error.message;
}

}  // namespace
}  // namespace quire
