#pragma once
// Prepares tool definitions for chat templates. Nearly every field of a definition is optional (OpenAI, Anthropic, MCP), but some templates
// read optional fields without checking that they exist.
#include <boost/json/object.hpp>
#include <boost/json/value.hpp>
#include <cstdint>
#include <string>

#include "quire/text/chat_template.h"

namespace quire {

// Removes nulls from the definitions, because a null counts as absent. Keeps nulls in values that a schema lists (default, const, enum,
// examples).
void drop_nulls_of_tools(boost::json::value& tools);

// Which missing fields fill_in() adds:
// - as_sent: none;
// - functions: the optional fields of functions (description, parameters and their properties);
// - schemas: also the optional fields of each schema (type, description, items; one type if there are several).
enum class ToolFields : std::uint8_t { as_sent, functions, schemas };
void fill_in(boost::json::value& tools, ToolFields fields);

// Returns the rendered text of a context with "tools". If the template cannot render the tools as sent, adds as few missing fields as
// possible; these fields stay in the context. If the template cannot render the tools with any of the fields, returns the first error.
[[nodiscard]] Result<std::string> render_with_tools(const ChatTemplate& chat_template, boost::json::object& context,
                                                    const TemplateOptions& options);

}  // namespace quire
