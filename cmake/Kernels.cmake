# Kernels: each file of runtime/kernel/cpu is compiled for its own instruction set and chosen at run time. Elsewhere runtime/kernel/no_cpu
# takes that folder's place and the plain kernels serve.
if(CMAKE_SYSTEM_PROCESSOR MATCHES "^(x86_64|AMD64|amd64)$")
  quire_room(kernel runtime/kernel DEPS base EXCLUDE no_cpu NO_PCH)
  file(GLOB avx2_sources CONFIGURE_DEPENDS "${PROJECT_SOURCE_DIR}/src/runtime/kernel/cpu/*_avx2.cpp")
  file(GLOB avx512_sources CONFIGURE_DEPENDS "${PROJECT_SOURCE_DIR}/src/runtime/kernel/cpu/*_avx512.cpp")
  set_source_files_properties(${avx2_sources} PROPERTIES COMPILE_OPTIONS "-mavx2;-mfma;-mf16c")
  set_source_files_properties(${avx512_sources} PROPERTIES COMPILE_OPTIONS
                              "-mavx2;-mfma;-mf16c;-mavx512f;-mavx512bw;-mavx512dq;-mavx512vl;-mavx512vnni;-mprefer-vector-width=512")
  if(CMAKE_CXX_COMPILER_ID STREQUAL GNU)  # its AVX-512 header warns of its own undefined vectors (GCC bug 105593)
    set_property(SOURCE ${avx512_sources} APPEND PROPERTY COMPILE_OPTIONS "-Wno-uninitialized;-Wno-maybe-uninitialized")
  endif()
else()
  quire_room(kernel runtime/kernel DEPS base EXCLUDE cpu NO_PCH)
endif()

if(QUIRE_BUILD_BENCH)
  add_executable(kernel_bench bench/kernel_bench.cpp)
  target_compile_options(kernel_bench PRIVATE ${QUIRE_WARNINGS})
  target_link_libraries(kernel_bench PRIVATE quire_kernel)
endif()
