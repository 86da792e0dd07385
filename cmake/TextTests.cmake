# Tests of the tokenizers on real vocabulary files, which need the readers of the format room too.
if(QUIRE_BUILD_TESTS)
  add_executable(quire_tokenize_tool "${PROJECT_SOURCE_DIR}/tests/text/vocab/tokenize_tool.cpp")
  target_compile_options(quire_tokenize_tool PRIVATE ${QUIRE_WARNINGS})
  target_include_directories(quire_tokenize_tool PRIVATE "${PROJECT_SOURCE_DIR}/tests")
  target_link_libraries(quire_tokenize_tool PRIVATE quire_text quire_format)

  add_executable(vocab_test "${PROJECT_SOURCE_DIR}/tests/text/vocab/vocab_suite.cpp")
  target_compile_options(vocab_test PRIVATE ${QUIRE_WARNINGS})
  target_include_directories(vocab_test PRIVATE "${PROJECT_SOURCE_DIR}/tests")
  target_link_libraries(vocab_test PRIVATE quire_text quire_format GTest::gtest_main)
  gtest_discover_tests(vocab_test DISCOVERY_MODE PRE_TEST DISCOVERY_TIMEOUT 60 PROPERTIES TIMEOUT 600 LABELS text
                       WORKING_DIRECTORY "${PROJECT_SOURCE_DIR}")
endif()
