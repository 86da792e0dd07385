#pragma once
// Parses and renders templates for tests.
#include <gtest/gtest.h>

#include <boost/json/parse.hpp>
#include <string>

#include "quire/text/chat_template.h"

namespace quire {

inline Result<std::string> render_template(std::string_view source, std::string_view context = "{}", const TemplateOptions& options = {}) {
  const auto parsed = ChatTemplate::parse(source);
  if (!parsed) return std::unexpected(parsed.error());
  boost::json::parse_options deep;
  deep.max_depth = 1000;
  return parsed->render(boost::json::parse(context, {}, deep), options);
}

// Returns the error of a template that must fail.
inline Error template_error(std::string_view source, std::string_view context = "{}", const TemplateOptions& options = {}) {
  const auto text = render_template(source, context, options);
  EXPECT_FALSE(text.has_value()) << source << " gives " << *text;
  return text ? Error{} : text.error();
}

// Returns `part` repeated.
inline std::string repeated(std::string_view part, int count) {
  std::string text;
  for (int i = 0; i < count; ++i) text += part;
  return text;
}

}  // namespace quire
