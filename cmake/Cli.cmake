# The `quire` command. Its main file is a separate target, so that it is compiled at the same time as the other files, and a first build
# then only has to link.
add_library(quire_main OBJECT src/cli/main.cpp)
target_compile_options(quire_main PRIVATE ${QUIRE_WARNINGS})
target_link_libraries(quire_main PRIVATE quire_cli)
add_executable(quire $<TARGET_OBJECTS:quire_main>)
target_compile_options(quire PRIVATE ${QUIRE_WARNINGS})
target_link_libraries(quire PRIVATE quire_cli)
# `quire --version` prints the commit, which can change although no source file changes.
add_custom_target(quire_commit BYPRODUCTS "${PROJECT_BINARY_DIR}/generated/commit.cpp" VERBATIM
                  COMMAND ${CMAKE_COMMAND} "-DSOURCE=${PROJECT_SOURCE_DIR}" "-DOUTPUT=${PROJECT_BINARY_DIR}/generated/commit.cpp"
                          -P "${PROJECT_SOURCE_DIR}/cmake/Commit.cmake")
target_sources(quire PRIVATE "${PROJECT_BINARY_DIR}/generated/commit.cpp")
# This file is not part of a unity source, because lint reads the unity sources of trees that were not built and do not have the file.
set_source_files_properties("${PROJECT_BINARY_DIR}/generated/commit.cpp" PROPERTIES SKIP_UNITY_BUILD_INCLUSION ON)
add_dependencies(quire quire_commit)
install(TARGETS quire RUNTIME DESTINATION bin)

# quire doctor reports the optional libraries that this build does not have.
set(without "")
foreach(name IN ITEMS LLGUIDANCE URING ZMQ HIREDIS PICTURE SNDFILE ZLIB XXHASH)
  if(NOT QUIRE_${name}_LIBS)
    list(APPEND without ${name})
  endif()
endforeach()
list(JOIN without "," without)
set_source_files_properties(src/cli/build_options.cpp PROPERTIES COMPILE_DEFINITIONS "QUIRE_BUILT_WITHOUT=\"${without}\"")
