# The `quire` command. Its main file apart, so that it is compiled beside the others where a first build leaves only the linking for later.
add_library(quire_main OBJECT src/cli/main.cpp)
target_compile_options(quire_main PRIVATE ${QUIRE_WARNINGS})
target_link_libraries(quire_main PRIVATE quire_cli)
add_executable(quire $<TARGET_OBJECTS:quire_main>)
target_compile_options(quire PRIVATE ${QUIRE_WARNINGS})
target_link_libraries(quire PRIVATE quire_cli)
# Its --version names the commit, which may change without a file of ours.
add_custom_target(quire_commit BYPRODUCTS "${PROJECT_BINARY_DIR}/generated/commit.cpp" VERBATIM
                  COMMAND ${CMAKE_COMMAND} "-DSOURCE=${PROJECT_SOURCE_DIR}" "-DOUTPUT=${PROJECT_BINARY_DIR}/generated/commit.cpp"
                          -P "${PROJECT_SOURCE_DIR}/cmake/Commit.cmake")
target_sources(quire PRIVATE "${PROJECT_BINARY_DIR}/generated/commit.cpp")
# Lint reads the units of a tree that was not built.
set_source_files_properties("${PROJECT_BINARY_DIR}/generated/commit.cpp" PROPERTIES SKIP_UNITY_BUILD_INCLUSION ON)
add_dependencies(quire quire_commit)
install(TARGETS quire RUNTIME DESTINATION bin)
