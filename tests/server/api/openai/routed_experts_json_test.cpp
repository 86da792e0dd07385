// Tests the NumPy file of routed experts.
#include "server/api/openai/routed_experts_json.h"

#include <gtest/gtest.h>

#include <span>
#include <string>
#include <vector>

#include "base/base64.h"

namespace quire {
namespace {

TEST(RoutedExperts, AreANumpyArrayOfTheSmallestIntegers) {
  const std::vector<std::uint16_t> experts = {1, 255, 0, 7, 2, 3, 4, 5};
  const auto text = [&](std::uint32_t num_experts) {
    return routed_experts_text({.experts = experts, .shape = {.num_layers = 2, .per_layer = 2, .num_experts = num_experts}}).value();
  };
  const auto file = [](const std::string& type, const std::string& values) {
    std::string dict = "{'descr': '" + type + "', 'fortran_order': False, 'shape': (2, 2, 2), }";
    dict.resize(117, ' ');
    std::string all = std::string("\x93NUMPY\x01\0", 8);
    all += '\x76';
    all += '\0';
    all += dict + "\n" + values;
    return base64_of(std::as_bytes(std::span(all)));
  };
  EXPECT_EQ(text(256), file("|u1", std::string("\x01\xFF\x00\x07\x02\x03\x04\x05", 8)));
  EXPECT_EQ(text(257), file("<u2", std::string("\x01\0\xFF\0\0\0\x07\0\x02\0\x03\0\x04\0\x05\0", 16)));
  EXPECT_FALSE(routed_experts_text({}));
}

}  // namespace
}  // namespace quire
