# Compile options that Trireme's own targets share, and the function that makes one target out of one folder.

add_library(trireme_options INTERFACE)
target_include_directories(trireme_options INTERFACE $<BUILD_INTERFACE:${PROJECT_SOURCE_DIR}/include>
                                                     $<BUILD_INTERFACE:${PROJECT_BINARY_DIR}/include>)
target_compile_features(trireme_options INTERFACE cxx_std_20)
target_compile_options(trireme_options INTERFACE -Wall -Wextra -Wpedantic -Wno-unknown-pragmas)
if(NOT TRIREME_ON_DEVICE)  # CUDA's headers have global names such as `half`; host builds look for shadows
  target_compile_options(trireme_options INTERFACE -Wshadow)
endif()
if(CMAKE_CXX_COMPILER_ID STREQUAL "GNU" AND CMAKE_CXX_COMPILER_VERSION VERSION_LESS 14)
  target_compile_options(trireme_options INTERFACE -Wno-restrict)  # GCC bug 105651: false alarms in std::string
endif()
if(CMAKE_CXX_COMPILER_ID MATCHES "Clang")
  target_compile_options(trireme_options INTERFACE -Wno-pass-failed)  # a simd loop left scalar is no error
endif()
# `#pragma omp simd` without the OpenMP run time: it lets reductions vectorise although -ffast-math stays off. GCC
# contracts a*b+c by default, clang only within an expression; one setting for both.
target_compile_options(trireme_options INTERFACE -fopenmp-simd -ffp-contract=fast -fno-math-errno -fno-trapping-math)
if(TRIREME_WERROR)
  target_compile_options(trireme_options INTERFACE -Werror)
endif()
if(TRIREME_AS_ON_DEVICE)
  target_compile_definitions(trireme_options INTERFACE TRIREME_AS_ON_DEVICE)
endif()
if(TRIREME_NATIVE)
  target_compile_options(trireme_options INTERFACE -march=native)
endif()
# Also without TRIREME_NATIVE: -march may come from the environment, as from Spack's compiler wrappers.
if(CMAKE_SYSTEM_PROCESSOR MATCHES "x86_64|AMD64")
  # GCC 12.2 with AVX-512 writes the 64-bit numbers 1, 1, 0, 0 of an initialiser as 1, 1, 1, 1: a constant whose upper
  # words are zero becomes a broadcast of the lower ones. Copies of constants by 128 bits are not concerned. The
  # kernels have no such constants, and keep vectors of 512 bits in arrays, whose copies by 128 take twice the time.
  if(CMAKE_CXX_COMPILER_ID STREQUAL "GNU" AND CMAKE_CXX_COMPILER_VERSION VERSION_GREATER_EQUAL 12
     AND CMAKE_CXX_COMPILER_VERSION VERSION_LESS 13)
    set(not_kernels "$<NOT:$<STREQUAL:$<TARGET_PROPERTY:NAME>,trireme_kernels>>")
    target_compile_options(trireme_options INTERFACE $<${not_kernels}:-mmove-max=128> $<${not_kernels}:-mstore-max=128>)
  endif()
  # GCC 12 prefers 256-bit vectors even where the processor has 512-bit ones; the kernels gain from the full width.
  include(CheckCXXCompilerFlag)
  check_cxx_compiler_flag(-mprefer-vector-width=512 TRIREME_HAS_VECTOR_WIDTH)
  if(TRIREME_HAS_VECTOR_WIDTH)
    target_compile_options(trireme_options INTERFACE -mprefer-vector-width=512)
  endif()
endif()
if(TRIREME_SANITIZE)
  target_compile_options(trireme_options INTERFACE -fsanitize=${TRIREME_SANITIZE} -fno-omit-frame-pointer
                                                   -fno-sanitize-recover=all)
  if(CMAKE_CXX_COMPILER_ID STREQUAL "GNU")  # false alarms where the sanitizers' checks stand between stores and reads
    target_compile_options(trireme_options INTERFACE -Wno-maybe-uninitialized)
  endif()
  target_link_options(trireme_options INTERFACE -fsanitize=${TRIREME_SANITIZE})
endif()

# trireme_folder(<name> [LINKS <target>...]): the target trireme_<name> from all of src/<name>/. Sources are globbed on
# purpose: the rule is "every file of the folder", and a test (tests/style) checks what a list could not say.
function(trireme_folder name)
  cmake_parse_arguments(ARG "" "" "LINKS" ${ARGN})
  file(GLOB sources CONFIGURE_DEPENDS ${PROJECT_SOURCE_DIR}/src/${name}/*.cpp)
  if(sources)
    add_library(trireme_${name} STATIC ${sources})
    target_link_libraries(trireme_${name} PUBLIC ${ARG_LINKS} PRIVATE trireme_options)
    target_include_directories(trireme_${name} PUBLIC ${PROJECT_SOURCE_DIR}/include ${PROJECT_BINARY_DIR}/include)
  else()
    add_library(trireme_${name} INTERFACE)
    target_link_libraries(trireme_${name} INTERFACE ${ARG_LINKS})
    target_include_directories(trireme_${name} INTERFACE ${PROJECT_SOURCE_DIR}/include ${PROJECT_BINARY_DIR}/include)
  endif()
endfunction()
