# Tests of the tokenizers on real vocabulary files. The tests also need the readers of the format room.
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

# Scripted models under real masks (tests/support/scripted_model.h).
if(QUIRE_BUILD_TESTS)
  file(GLOB mask_suites CONFIGURE_DEPENDS "${PROJECT_SOURCE_DIR}/tests/masks/*_suite.cpp")
  add_executable(mask_test ${mask_suites})
  target_compile_options(mask_test PRIVATE ${QUIRE_WARNINGS})
  target_include_directories(mask_test PRIVATE "${PROJECT_SOURCE_DIR}/tests")
  target_link_libraries(mask_test PRIVATE quire_text quire_format quire_grammar Boost::json GTest::gtest_main)
  gtest_discover_tests(mask_test TEST_FILTER -*MaskedCalls* DISCOVERY_MODE PRE_TEST DISCOVERY_TIMEOUT 60
                       PROPERTIES TIMEOUT 1500 LABELS text WORKING_DIRECTORY "${PROJECT_SOURCE_DIR}")
  # All tests of MaskedCalls run in one process. In separate processes, each test would load the vocabularies again, which takes longer than
  # the tests.
  add_test(NAME MaskedCalls COMMAND mask_test --gtest_filter=*MaskedCalls* WORKING_DIRECTORY "${PROJECT_SOURCE_DIR}")
  set_tests_properties(MaskedCalls PROPERTIES TIMEOUT 1500 LABELS text)
endif()
