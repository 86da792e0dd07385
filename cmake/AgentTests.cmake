# The server for the agents' clients of tests/agents. Only `./dev test --all` builds it.
if(QUIRE_BUILD_TESTS)
  add_executable(quire_scripted_server EXCLUDE_FROM_ALL tests/agents/scripted_server.cpp tests/agents/script.cpp)
  target_compile_options(quire_scripted_server PRIVATE ${QUIRE_WARNINGS})
  target_include_directories(quire_scripted_server PRIVATE "${PROJECT_SOURCE_DIR}/tests")
  target_link_libraries(quire_scripted_server PRIVATE quire_server quire_engine CLI11::CLI11)
endif()
