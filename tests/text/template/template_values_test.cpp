#include <string>
#include <utility>
#include <vector>

#include "text/template/render_template.h"

namespace quire {
namespace {

using UseAndCount = std::vector<std::pair<std::string, std::uint64_t>>;

// Returns the smallest limit with which a template renders the value of `use`. The context has a text `s` of `bytes` letters.
std::uint64_t least_limit(const std::string& use, std::uint64_t TemplateLimits::* limit, int bytes) {
  const std::string source = "{% set r = " + use + " %}";
  const std::string context = R"({"s": ")" + repeated("x", bytes) + "\"}";
  TemplateOptions options;
  std::uint64_t low = 0;
  std::uint64_t high = options.limits.*limit;
  while (low < high) {
    options.limits.*limit = low + (high - low) / 2;
    const auto text = render_template(source, context, options);
    if (text) {
      high = options.limits.*limit;
    } else {
      EXPECT_EQ(text.error().code, ErrorCode::too_large) << source << text.error().message;
      low = options.limits.*limit + 1;
    }
  }
  return low;
}

// Expects that `use` takes this many steps more for a text of 6400 bytes than for one of 640 bytes.
void expect_growth(const UseAndCount& cases) {
  for (const auto& [use, steps] : cases)
    EXPECT_EQ(least_limit(use, &TemplateLimits::max_steps, 6400) - least_limit(use, &TemplateLimits::max_steps, 640), steps) << use;
}

TEST(TemplateValues, WorkOnATextCountsAsSteps) {
  constexpr std::uint64_t kCopy = 90;  // a text of 5760 bytes more
  expect_growth({{"s", 0},
                 {"s.strip()", 2 * kCopy},
                 {"s.lstrip()", 2 * kCopy},
                 {"s.strip('yz')", 4 * kCopy},
                 {"s.upper()", kCopy},
                 {"s.casefold()", kCopy},
                 {"s.startswith('x')", 0},
                 {"s.endswith('x', 1)", kCopy},
                 {"s.find('y')", kCopy},
                 {"s.find('y', 1)", 2 * kCopy},
                 {"s.count('y')", kCopy},
                 {"s.isalpha()", kCopy},
                 {"s.isupper()", 2 * kCopy},
                 {"s.split('y')", 5 * kCopy},
                 {"s.rsplit()", 5 * kCopy},
                 {"s.partition('y')", 2 * kCopy},
                 {"s.splitlines()", kCopy},
                 {"s.replace('y', 'z')", kCopy},
                 {"s.removeprefix('y')", kCopy},
                 {"s.expandtabs()", kCopy},
                 {"s.ljust(3)", kCopy},
                 {"s.zfill(3)", kCopy}});
}

TEST(TemplateValues, FiltersOfATextCountAsSteps) {
  constexpr std::uint64_t kCopy = 90, kVisits = 5760;
  expect_growth({{"s | trim", 2 * kCopy},
                 {"s | title", kCopy},
                 {"s | escape", kCopy},
                 {"s | forceescape", kCopy},
                 {"s | string", 0},
                 {"s | center(3)", kCopy},
                 {"s | truncate(9)", kCopy},
                 {"s | indent", kCopy},
                 {"s | urlencode", kCopy},
                 {"s | striptags", 2 * kCopy},
                 {"('<' ~ s) | striptags", 5 * kCopy},
                 {"s | wordcount", 4 * kCopy},
                 {"s | wordwrap(9)", kVisits + 640 + 100},
                 {"s | wordwrap(4)", 2 * kVisits + 1440 + 112},
                 {"'%s' | format(s)", kCopy},
                 {"'%s' % s", kCopy},
                 {"'{}'.format(s)", kCopy},
                 {"s | length", kCopy},
                 {"s | first", kVisits},
                 {"s | list", 2 * kVisits},
                 {"s | join", kVisits + kCopy},
                 {"s | reverse", kVisits + kCopy},
                 {"s | unique", 2 * kVisits}});
}

TEST(TemplateValues, PartsOfASequenceCountAsSteps) {
  const auto steps = [](const std::string& use) { return least_limit(use, &TemplateLimits::max_steps, 0); };
  EXPECT_EQ(steps("[1] | batch(2000, 0)") - steps("[1] | batch(1000, 0)"), 2000);
  EXPECT_EQ(steps("[1] | slice(2000)") - steps("[1] | slice(1000)"), 2000);
  EXPECT_EQ(steps("[1] | slice(2000, 0)") - steps("[1] | slice(1000, 0)"), 3000);
  EXPECT_EQ(steps("'%d%%' % 1") - steps("'%d--' % 1"), 1);
  EXPECT_EQ(steps("'{}{}'.format(1, 2)") - steps("'{}--'.format(1, 2)"), 1);
}

TEST(TemplateValues, TheirTextsAreBoundedExactly) {
  const UseAndCount cases = {{"'x'.ljust(500)", 500},
                             {"'x'.rjust(500)", 500},
                             {"'x'.center(500)", 500},
                             {"'x' | center(500)", 500},
                             {"'5'.zfill(500)", 500},
                             {"'-5'.zfill(500)", 500},
                             {"'\\t'.expandtabs(500)", 500},
                             {"'ab\\t'.expandtabs(500)", 500},
                             {"'x' | indent(500)", 500},
                             {"'%500d' % 1", 500},
                             {"'%500s' % 'a'", 500},
                             {"'%.500d' % 1", 500},
                             {"'%.500f' % 1", 502},
                             {"'{:500}'.format(1)", 500},
                             {"'{:0500}'.format(1)", 500},
                             {"'{:.500f}'.format(1)", 502},
                             {"'{:é>250}'.format('xx')", 500},
                             {"'{:é=250}'.format(12)", 500},
                             {"'-'.join(s)", 999},
                             {"s | join('-')", 999},
                             {"'a' | replace('a', s)", 500},
                             {"{'a': s} | urlencode", 502},
                             {"{'a': s} | xmlattr", 505},
                             {"s.replace('x', '<') | escape", 2000},
                             {"s.replace('x', '<') | urlencode", 1500},
                             {"s | wordwrap(250)", 501}};
  for (const auto& [use, bytes] : cases) EXPECT_EQ(least_limit(use, &TemplateLimits::max_output_bytes, 500), bytes) << use;
}

void expect_unsupported(const std::vector<std::pair<const char*, const char*>>& cases) {
  TemplateOptions options;
  options.now_s = 1'764'598'325;
  for (const auto& [source, what] : cases) {
    const Error error = template_error(source, "{}", options);
    EXPECT_EQ(error.code, ErrorCode::unsupported) << source;
    EXPECT_EQ(error.message, std::string("line 1: ") + what + " is not supported") << source;
  }
}

TEST(TemplateValues, FiltersSayWhatTheyDoNotSupport) {
  expect_unsupported({{"{{ [1] | batch(0) }}", "filter 'batch' with this line count"},
                      {"{{ [1] | batch(100001) }}", "filter 'batch' with this line count"},
                      {"{{ [1] | slice(100001) }}", "filter 'slice' with this number of slices"},
                      {"{{ ['x' * 77] | pprint }}", "filter 'pprint' of more than one line"},
                      {"{{ '5' | filesizeformat }}", "filter 'filesizeformat' of a text"},
                      {"{{ [1] | map('nope') }}", "filter 'nope'"},
                      {"{{ [1] | select('nope') }}", "test 'nope'"},
                      {"{{ [1] | rejectattr('a', 'nope') }}", "test 'nope'"},
                      {"{{ '1' | int(0, 1) }}", "filter 'int' with this base"},
                      {"{{ '1' | int(0, 37) }}", "filter 'int' with this base"},
                      {"{{ 1.5 | round(-1) }}", "filter 'round' with this precision"},
                      {"{{ 1.5 | round(16) }}", "filter 'round' with this precision"},
                      {"{{ '%s' | safe | format(1) }}", "filter 'format' on a safe string"}});
  EXPECT_EQ(*render_template("{{ [1] | batch(100000) | list | length }}{{ [1] | slice(100000) | list | length }}"), "1100000");
  EXPECT_EQ(*render_template("{{ '1' | int(0, 2) }}{{ '1' | int(0, 36) }}{{ 1.5 | round(15) }}"), "111.5");
}

TEST(TemplateValues, MethodsAndFormatsSayWhatTheyDoNotSupport) {
  expect_unsupported({{"{{ '%a' % 1 }}", "'%a' in a format"},
                      {"{{ '{!a}'.format(1) }}", "conversion '!a'"},
                      {"{{ '{:.1001f}'.format(1.5) }}", "a precision of this size"},
                      {"{{ '%.1001f' % 1.5 }}", "a precision of this size"},
                      {"{{ '{:#}'.format(1.5) }}", "'#' in the format of a float"},
                      {"{{ ('a' | safe).replace('a', 'b') }}", "method 'replace' on a safe string"},
                      {"{{ ('a' | safe).join([]) }}", "method 'join' on a safe string"},
                      {"{{ ('a' | safe).format() }}", "method 'format' on a safe string"},
                      {"{{ ('a' | safe).format_map({}) }}", "method 'format_map' on a safe string"},
                      {"{{ strftime_now('%Q') }}", "strftime_now format '%Q'"},
                      {"{{ strftime_now('a%') }}", "strftime_now format 'a%'"},
                      {"{{ strftime_now('%-') }}", "strftime_now format '%-'"},
                      {"{{ strftime_now('%d%9d') }}", "strftime_now format '%d%9d'"},
                      {"{{ strftime_now('%--d') }}", "strftime_now format '%--d'"},
                      {"{{ '\\N{BULLET}' }}", "string escape '\\N{...}'"}});
  for (const char* escape : {"'\\ud800'", "'\\udfff'", "'\\U00110000'"})
    EXPECT_EQ(template_error(std::string("{{ ") + escape + " }}").code, ErrorCode::unsupported) << escape;
  EXPECT_TRUE(render_template("{{ '{:.1000f}%.1000f'.format(1.5) % 1.5 }}"));
}

TEST(TemplateValues, WidthsAndDepthsAreBoundedExactly) {
  const std::vector<std::pair<const char*, const char*>> cases = {
      {"{{ '{:2147483648}'.format(1) }}", "Too many decimal digits in format string"},
      {"{{ '%2147483648d' % 1 }}", "width too big"},
      {"{{ '%*d' % (2147483648, 1) }}", "width too big"},
      {"{{ '%*d' % (-2147483648, 1) }}", "width too big"},
      {"{{ '%d' % 2e36 }}", "cannot convert float to integer"},
      {"{{ '%d' % -2e36 }}", "cannot convert float to integer"},
  };
  for (const auto& [source, message] : cases) EXPECT_EQ(template_error(source).message, std::string("line 1: ") + message) << source;
  for (const char* source :
       {"{{ '{:2147483647}'.format(1) }}", "{{ '%2147483647d' % 1 }}", "{{ '%*d' % (2147483647, 1) }}", "{{ '%*d' % (-2147483647, 1) }}"})
    EXPECT_EQ(template_error(source).code, ErrorCode::too_large) << source;
  EXPECT_EQ(*render_template("{{ '2e36' | int(7) }}{{ '%d' % 1e36 }}"), "71000000000000000042420637374017961984");
  const std::string pretty = "{% set n = namespace(s=[]) %}{% for a in range(64) %}{% set n.s = [n.s] %}{% endfor %}{{ n.s | pprint }}";
  EXPECT_EQ(template_error(pretty).code, ErrorCode::unsupported);  // 130 characters
  EXPECT_EQ(
      template_error("{% set n = namespace(s={}) %}{% for a in range(65) %}{% set n.s = {1: n.s} %}{% endfor %}{{ n.s | pprint }}").message,
      "line 1: a value is nested too deeply");
}

TEST(TemplateValues, IntegersHave128Bits) {
  const std::string most = "170141183460469231731687303715884105727", more = "170141183460469231731687303715884105728";
  EXPECT_EQ(*render_template("{{ " + most + " }}{{ '" + most + "' | int }}{{ 0x" + repeated("f", 31) + " > 0 }}"), most + most + "True");
  EXPECT_EQ(template_error("{{ " + more + " }}").code, ErrorCode::unsupported);
  EXPECT_EQ(template_error("{{ 1000" + most + " }}").code, ErrorCode::unsupported);
  EXPECT_EQ(template_error("{{ 0x" + repeated("f", 32) + " }}").code, ErrorCode::unsupported);
  EXPECT_EQ(*render_template("{{ '" + more + "' | int(7) }}{{ '1000" + most + "' | int(8) }}"), "78");
}

TEST(TemplateValues, TheFormatOfATimeIsBoundedExactly) {
  TemplateOptions options;
  options.now_s = 0;
  const auto format = [](int size) { return "{{ strftime_now('" + repeated("x", size) + "') | length }}"; };
  EXPECT_EQ(*render_template(format(2047), "{}", options), "2047");
  EXPECT_EQ(template_error(format(2048), "{}", options).message, "line 1: strftime_now: the format is too long");
}

}  // namespace
}  // namespace quire
