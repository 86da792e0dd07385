# The tool that tests/python/test_templates.py drives (environment variable QUIRE_TEMPLATE_TOOL).
if(QUIRE_BUILD_TESTS)
  add_executable(quire_template_tool "${PROJECT_SOURCE_DIR}/tests/text/template/template_tool.cpp")
  target_compile_options(quire_template_tool PRIVATE ${QUIRE_WARNINGS})
  target_link_libraries(quire_template_tool PRIVATE quire_text)
endif()
