# Compile options of Trireme's own targets, and a function that makes a target from a folder.

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
  target_compile_options(trireme_options INTERFACE -Wno-pass-failed)  # a simd loop that stays scalar is not an error
endif()
# `#pragma omp simd` without the OpenMP run time vectorises reductions without -ffast-math. GCC contracts a*b+c by
# default, clang only within an expression; this sets both to the same.
set(vectors -fopenmp-simd)
if(TRIREME_DEVICE_KIND STREQUAL "hip")  # in device code, clang would move variables to memory that OpenMP shares
  set(vectors "SHELL:-Xarch_host -fopenmp-simd")
endif()
target_compile_options(trireme_options INTERFACE "${vectors}" -ffp-contract=fast -fno-math-errno -fno-trapping-math)
if(TRIREME_WERROR)
  target_compile_options(trireme_options INTERFACE -Werror)
endif()
if(TRIREME_AS_ON_DEVICE)
  target_compile_definitions(trireme_options INTERFACE TRIREME_AS_ON_DEVICE)
endif()
if(TRIREME_NATIVE AND TRIREME_ARCHITECTURE)
  message(FATAL_ERROR "TRIREME_NATIVE=ON and TRIREME_ARCHITECTURE=${TRIREME_ARCHITECTURE} exclude each other: configure "
                      "with -DTRIREME_NATIVE=OFF for processors other than this machine's")
elseif(TRIREME_NATIVE)
  target_compile_options(trireme_options INTERFACE -march=native)
elseif(TRIREME_ARCHITECTURE)
  target_compile_options(trireme_options INTERFACE -march=${TRIREME_ARCHITECTURE})
endif()
# Also without TRIREME_NATIVE, because -march may come from the environment, as with Spack's compiler wrappers.
if(CMAKE_SYSTEM_PROCESSOR MATCHES "x86_64|AMD64")
  # GCC 12.2 with AVX-512 writes the 64-bit numbers 1, 1, 0, 0 of an initialiser as 1, 1, 1, 1: a constant whose upper
  # words are zero becomes a broadcast of the lower ones. 128-bit copies of constants are correct. The kernels have no
  # such constants, and they copy 512-bit vectors in arrays, which takes twice the time with 128-bit copies.
  if(CMAKE_CXX_COMPILER_ID STREQUAL "GNU" AND CMAKE_CXX_COMPILER_VERSION VERSION_GREATER_EQUAL 12
     AND CMAKE_CXX_COMPILER_VERSION VERSION_LESS 13)
    set(not_kernels "$<NOT:$<STREQUAL:$<TARGET_PROPERTY:NAME>,trireme_kernels>>")
    target_compile_options(trireme_options INTERFACE $<${not_kernels}:-mmove-max=128> $<${not_kernels}:-mstore-max=128>)
  endif()
  # GCC 12 prefers 256-bit vectors even if the processor has 512-bit ones; the kernels are faster with 512 bits.
  include(CheckCXXCompilerFlag)
  check_cxx_compiler_flag(-mprefer-vector-width=512 TRIREME_HAS_VECTOR_WIDTH)
  if(TRIREME_HAS_VECTOR_WIDTH)
    target_compile_options(trireme_options INTERFACE -mprefer-vector-width=512)
  endif()
endif()
if(TRIREME_SANITIZE)
  target_compile_options(trireme_options INTERFACE -fsanitize=${TRIREME_SANITIZE} -fno-omit-frame-pointer
                                                   -fno-sanitize-recover=all)
  if(CMAKE_CXX_COMPILER_ID STREQUAL "GNU")  # false alarms where the sanitizers add checks between stores and reads
    target_compile_options(trireme_options INTERFACE -Wno-maybe-uninitialized)
  endif()
  target_link_options(trireme_options INTERFACE -fsanitize=${TRIREME_SANITIZE})
endif()

if(TRIREME_FUZZERS)
  if(NOT CMAKE_CXX_COMPILER_ID MATCHES "Clang")
    message(FATAL_ERROR "TRIREME_FUZZERS needs clang: configure with -DCMAKE_CXX_COMPILER=clang++")
  endif()
  set(fuzzed address,undefined)
  target_compile_options(trireme_options INTERFACE -fsanitize=fuzzer-no-link,${fuzzed} -fno-sanitize-recover=undefined -g -O1)
  target_link_options(trireme_options INTERFACE -fsanitize=${fuzzed})
endif()

# trireme_folder(<name> [LINKS <target>...]): the target trireme_<name> from all files of src/<name>/. Sources are
# globbed on purpose: the rule is "every file of the folder", and tests/style checks the folders.
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
