# ./dev mutants --room: the programs that Python tests start choose their mutant by an environment variable.
if(QUIRE_MUTANTS)
  set(process "${PROJECT_SOURCE_DIR}/tools/mutants/process.cpp")
  set_source_files_properties("${process}" PROPERTIES SKIP_UNITY_BUILD_INCLUSION ON SKIP_PRECOMPILE_HEADERS ON)
  foreach(program quire quire_template_tool quire_calls_tool quire_tokenize_tool)
    target_sources(${program} PRIVATE "${process}")
  endforeach()
endif()
