// quire_tokenize_tool MODEL [--parse-special] [--add-special] [--decode] [--template] reads JSON strings from stdin, one per line, and
// writes JSON arrays of ids to stdout. With --decode it converts arrays of ids to strings; with --template it writes only the chat
// template. Tests use it for comparisons with other tokenizers.
#include <boost/json.hpp>
#include <cstdio>
#include <iostream>
#include <string>
#include <vector>

#include "text/vocab/load.h"

namespace {

struct Arguments {
  std::string model;
  quire::EncodeOptions options{.add_special = false, .parse_special = false};
  bool decode = false, prints_template = false;
};

bool parse(int argc, char** argv, Arguments& arguments) {
  for (int i = 1; i < argc; ++i) {
    const std::string argument = argv[i];
    if (argument == "--parse-special")
      arguments.options.parse_special = true;
    else if (argument == "--add-special")
      arguments.options.add_special = true;
    else if (argument == "--decode")
      arguments.decode = true;
    else if (argument == "--template")
      arguments.prints_template = true;
    else if (arguments.model.empty())
      arguments.model = argument;
    else
      return false;
  }
  return !arguments.model.empty();
}

boost::json::value answer(const quire::Tokenizer& tokenizer, const Arguments& arguments, const boost::json::value& line) {
  if (arguments.decode) {
    const auto ids = boost::json::value_to<std::vector<quire::TokenId>>(line);
    return boost::json::string(tokenizer.decode(ids, /*skip_special=*/true));
  }
  return boost::json::value_from(tokenizer.encode(std::string_view(line.as_string()), arguments.options).value());
}

}  // namespace

int main(int argc, char** argv) {
  Arguments arguments;
  if (!parse(argc, argv, arguments)) {
    std::cerr << "usage: quire_tokenize_tool MODEL [--parse-special] [--add-special] [--decode] < texts.jsonl\n";
    return 2;
  }
  if (arguments.prints_template) {
    std::cout << quire::test::load_spec(arguments.model).value().chat_template;
    return 0;
  }
  const auto tokenizer = quire::test::load_tokenizer(arguments.model);
  if (!tokenizer) {
    std::cerr << tokenizer.error().to_string() << '\n';
    return 1;
  }
  std::ios::sync_with_stdio(false);
  for (std::string line; std::getline(std::cin, line);)
    std::cout << boost::json::serialize(answer(**tokenizer, arguments, boost::json::parse(line))) << '\n';
  return 0;
}
