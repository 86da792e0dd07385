#include "text/tool_calls/template_roles.h"

#include <gtest/gtest.h>

#include <boost/json/parse.hpp>
#include <boost/json/serialize.hpp>
#include <string>

namespace quire {
namespace {

TemplateRoles roles_of(const std::string& source) {
  return find_roles(ChatTemplate::parse(source).value(), source);
}

std::string adapted(const TemplateRoles& roles, std::string_view messages) {
  boost::json::array array = boost::json::parse(messages).as_array();
  adapt_roles(roles, array);
  std::string text;
  for (const boost::json::value& message : array)
    text += std::string(message.at("role").as_string()) + "=" + boost::json::serialize(message.at("content")) + ";";
  return text;
}

constexpr const char* kShowsAll = "{% for m in messages %}<{{ m.role }}>{{ m.content }}{{ m.tool_calls }}{% endfor %}";
constexpr const char* kOneSystem =
    "{% if messages[0].role == 'system' %}{{ messages[0].content }}{% endif %}{% for m in messages %}{% if m.role in ['user', 'assistant', "
    "'tool'] %}<{{ m.role }}>{{ m.content }}{{ m.tool_calls }}{% endif %}{% endfor %}";

TEST(TemplateRoles, DetectWhichRolesATemplateShows) {
  const TemplateRoles all = roles_of(kShowsAll);
  EXPECT_TRUE(all.system && all.several_systems && all.late_system && all.several_users && all.calls);
  EXPECT_FALSE(all.developer || all.parts_text) << "the template shows any role, but the model does not know developer";
  EXPECT_TRUE(roles_of(std::string(kShowsAll) + "{# developer #}").developer);
  const TemplateRoles one = roles_of(kOneSystem);
  EXPECT_TRUE(one.system);
  EXPECT_FALSE(one.several_systems || one.late_system || one.developer);
  const TemplateRoles none = roles_of(
      "{% for m in messages %}{% if (m.role == 'user') != (loop.index0 % 2 == 0) %}{{ raise_exception('alternate') }}{% endif %}"
      "{{ m.content }}{% endfor %}");
  EXPECT_FALSE(none.system || none.late_system || none.several_users);
  EXPECT_TRUE(roles_of("{{ tools }}").system) << "detection fails, so nothing is changed";
}

TEST(TemplateRoles, DetectCallsAndTheTextNextToThem) {
  const TemplateRoles beside = roles_of(
      "{% for m in messages %}<{{ m.role }}>{% if m.tool_calls %}{{ m.tool_calls }}{% else %}{{ m.content }}{% endif %}{% endfor %}");
  EXPECT_TRUE(beside.parts_text && beside.calls);
  EXPECT_EQ(adapted(beside, R"([{"role": "assistant", "content": "let me see", "tool_calls": [{"id": "a"}]}])"),
            R"(assistant="let me see";assistant="";)");
  const TemplateRoles silent = roles_of("{% for m in messages %}<{{ m.role }}>{{ m.content }}{% endfor %}{# tool_calls #}");
  EXPECT_FALSE(silent.calls);
}

TEST(TemplateRoles, ReduceMessagesToTheRolesOfTheTemplate) {
  const char* const kSeveral =
      R"([{"role": "system", "content": "A"}, {"role": "developer", "content": "B"}, {"role": "user", "content": "u"},
      {"role": "assistant", "content": "x"}, {"role": "system", "content": "C"}, {"role": "developer", "content": "D"},
      {"role": "user", "content": "v"}])";
  EXPECT_EQ(adapted({}, kSeveral), R"(system="A";system="B";user="u";assistant="x";system="C";system="D";user="v";)");
  EXPECT_EQ(adapted({.developer = true}, kSeveral),
            R"(system="A";developer="B";user="u";assistant="x";system="C";developer="D";user="v";)");
  EXPECT_EQ(adapted({.several_systems = false, .late_system = false}, kSeveral),
            R"(system="A\n\nB";user="u";assistant="x";user="C\n\nD\n\nv";)");
  EXPECT_EQ(adapted({.system = false, .several_systems = false, .late_system = false}, kSeveral),
            R"(user="A\n\nB\n\nu";assistant="x";user="C\n\nD\n\nv";)");
}

TEST(TemplateRoles, MoveFinalInstructionsToThePrecedingUserMessage) {
  const TemplateRoles roles{.late_system = false};
  EXPECT_EQ(adapted(roles, R"([{"role": "user", "content": "u"}, {"role": "system", "content": "A"}])"), R"(user="u\n\nA";)");
  EXPECT_EQ(
      adapted(roles, R"([{"role": "user", "content": "u"}, {"role": "assistant", "content": "x"}, {"role": "system", "content": "A"}])"),
      R"(user="u";assistant="x";user="A";)");
}

TEST(TemplateRoles, KeepPartsNextToInstructions) {
  const TemplateRoles roles{.system = false, .several_users = false};
  EXPECT_EQ(adapted(roles, R"([{"role": "system", "content": "A"}, {"role": "user", "content": [{"type": "image"}]},
                               {"role": "user", "content": "v"}])"),
            R"(user=[{"type":"text","text":"A\n\n"},{"type":"image"},{"type":"text","text":"\n\nv"}];)");
  EXPECT_EQ(adapted(roles, R"([{"role": "user", "content": "u"}, {"role": "user", "content": [{"type": "image"}]}])"),
            R"(user=[{"type":"text","text":"u"},{"type":"image"}];)");
}

}  // namespace
}  // namespace quire
