# Finds all dependencies and never downloads them. One message lists all missing ones with their Debian and Spack
# packages.

set(TRIREME_MISSING "")

# trireme_need(<found?> <what> <Debian package> <Spack package>)
function(trireme_need found what debian spack)
  if(NOT found)
    set(TRIREME_MISSING
        "${TRIREME_MISSING}\n  ${what}\n      Debian: apt-get install ${debian}\n      Spack:  spack install ${spack}"
        PARENT_SCOPE)
  endif()
endfunction()

find_package(Kokkos 3.4 QUIET)
trireme_need("${Kokkos_FOUND}" "Kokkos 3.4 or newer" libtrilinos-kokkos-dev kokkos)
find_package(KokkosKernels QUIET)
trireme_need("${KokkosKernels_FOUND}" "Kokkos Kernels"
             "libtrilinos-kokkos-kernels-dev liblapack-dev libblas-dev" kokkos-kernels)

set(MPI_DETERMINE_LIBRARY_VERSION ON)  # for `trireme --version`
find_package(MPI QUIET COMPONENTS CXX)
trireme_need("${MPI_CXX_FOUND}" "MPI" "mpich libmpich-dev" mpich)

set(HDF5_PREFER_PARALLEL ON)
find_package(HDF5 1.10 QUIET COMPONENTS C)
trireme_need("${HDF5_FOUND}" "HDF5 1.10 or newer (serial or parallel)" libhdf5-mpich-dev hdf5)

find_package(tomlplusplus QUIET)
trireme_need("${tomlplusplus_FOUND}" "toml++" libtomlplusplus-dev tomlplusplus)

find_package(CLI11 QUIET)
if(NOT CLI11_FOUND)  # Debian's package has no CMake configuration
  find_path(CLI11_INCLUDE_DIR CLI/CLI.hpp)
  if(CLI11_INCLUDE_DIR)
    add_library(CLI11::CLI11 INTERFACE IMPORTED)
    set_target_properties(CLI11::CLI11 PROPERTIES INTERFACE_INCLUDE_DIRECTORIES "${CLI11_INCLUDE_DIR}")
    set(CLI11_FOUND TRUE)
  endif()
endif()
trireme_need("${CLI11_FOUND}" "CLI11" libcli11-dev cli11)

find_package(nlohmann_json QUIET)
trireme_need("${nlohmann_json_FOUND}" "nlohmann-json" nlohmann-json3-dev nlohmann-json)

find_package(ZLIB QUIET)
trireme_need("${ZLIB_FOUND}" "zlib" zlib1g-dev zlib-ng+compat)

find_path(XXHASH_INCLUDE_DIR xxhash.h)
find_library(XXHASH_LIBRARY xxhash)
if(XXHASH_INCLUDE_DIR AND XXHASH_LIBRARY)
  set(XXHASH_FOUND TRUE)
  add_library(trireme_xxhash INTERFACE)
  target_include_directories(trireme_xxhash SYSTEM INTERFACE "${XXHASH_INCLUDE_DIR}")
  target_link_libraries(trireme_xxhash INTERFACE "${XXHASH_LIBRARY}")
endif()
trireme_need("${XXHASH_FOUND}" "xxHash" libxxhash-dev xxhash)

find_path(PCRE2_INCLUDE_DIR pcre2.h)
find_library(PCRE2_LIBRARY pcre2-8)
if(PCRE2_INCLUDE_DIR AND PCRE2_LIBRARY)
  set(PCRE2_FOUND TRUE)
  add_library(trireme_pcre2 INTERFACE)
  target_include_directories(trireme_pcre2 SYSTEM INTERFACE "${PCRE2_INCLUDE_DIR}")
  target_link_libraries(trireme_pcre2 INTERFACE "${PCRE2_LIBRARY}")
endif()
trireme_need("${PCRE2_FOUND}" "PCRE2" libpcre2-dev pcre2)

find_package(ICU QUIET COMPONENTS uc data)
trireme_need("${ICU_FOUND}" "ICU" libicu-dev icu4c)

if(TRIREME_TESTS)
  find_package(GTest QUIET)
  trireme_need("${GTest_FOUND}" "GoogleTest (or configure with -DTRIREME_TESTS=OFF)" libgtest-dev googletest)
endif()
if(TRIREME_BENCHMARKS)
  find_package(benchmark QUIET)
  trireme_need("${benchmark_FOUND}" "Google Benchmark (or configure with -DTRIREME_BENCHMARKS=OFF)"
               libbenchmark-dev benchmark)
endif()

# Libraries of image formats, for `trireme tokenize --images`.
if(NOT TRIREME_PNG STREQUAL "OFF")
  find_package(PNG 1.6 QUIET)
  if(TRIREME_PNG STREQUAL "ON")
    trireme_need("${PNG_FOUND}" "libpng 1.6 (or configure with -DTRIREME_PNG=OFF)" libpng-dev libpng)
  elseif(NOT PNG_FOUND)
    message(STATUS "libpng not found: `trireme tokenize --images` will read no PNG files. Debian: apt-get install libpng-dev; "
                   "Spack: spack install libpng.")
  endif()
endif()
if(NOT TRIREME_JPEG STREQUAL "OFF")
  find_package(JPEG QUIET)
  if(TRIREME_JPEG STREQUAL "ON")
    trireme_need("${JPEG_FOUND}" "libjpeg-turbo (or configure with -DTRIREME_JPEG=OFF)" libjpeg-dev libjpeg-turbo)
  elseif(NOT JPEG_FOUND)
    message(STATUS "libjpeg-turbo not found: `trireme tokenize --images` will read no JPEG files. Debian: apt-get install "
                   "libjpeg-dev; Spack: spack install libjpeg-turbo.")
  endif()
endif()

# oneDNN computes on hosts only: builds for devices use it only if TRIREME_ONEDNN is ON.
if("CUDA" IN_LIST Kokkos_DEVICES OR "HIP" IN_LIST Kokkos_DEVICES OR "SYCL" IN_LIST Kokkos_DEVICES)
  set(device_in_kokkos ON)
else()
  set(device_in_kokkos OFF)
endif()
if(TRIREME_ONEDNN STREQUAL "ON" OR (TRIREME_ONEDNN STREQUAL "AUTO" AND NOT device_in_kokkos))
  find_package(dnnl QUIET)
  if(TRIREME_ONEDNN STREQUAL "ON")
    trireme_need("${dnnl_FOUND}" "oneDNN (or configure with -DTRIREME_ONEDNN=OFF)" libdnnl-dev onednn)
  elseif(NOT dnnl_FOUND)
    message(WARNING "oneDNN not found: on hosts Trireme's own kernel computes fp32 matrix products, several times slower on "
                    "most processors. Debian: apt-get install libdnnl-dev; Spack: spack install onednn.")
  endif()
endif()

if("CUDA" IN_LIST Kokkos_DEVICES OR "HIP" IN_LIST Kokkos_DEVICES)
  if(NOT TRIREME_NCCL STREQUAL "OFF")
    # The build needs only the header: the first job with several ranks loads the shared library at run time
    # (src/grid/nccl_library.cpp).
    if("HIP" IN_LIST Kokkos_DEVICES)
      find_path(NCCL_INCLUDE_DIR rccl/rccl.h HINTS ENV ROCM_PATH PATH_SUFFIXES include)
      find_library(NCCL_LIBRARY NAMES librccl.so librccl.so.1 HINTS ENV ROCM_PATH PATH_SUFFIXES lib)
    else()
      find_package(CUDAToolkit QUIET)
      find_path(NCCL_INCLUDE_DIR nccl.h HINTS ${CUDAToolkit_INCLUDE_DIRS})
      find_library(NCCL_LIBRARY NAMES libnccl.so libnccl.so.2 HINTS ${CUDAToolkit_LIBRARY_DIR})
    endif()
    if(NCCL_INCLUDE_DIR)
      set(NCCL_FOUND TRUE)
      add_library(trireme_nccl INTERFACE)
      target_include_directories(trireme_nccl SYSTEM INTERFACE "${NCCL_INCLUDE_DIR}")
      set(nccl_is "no library here; set LD_LIBRARY_PATH to its folder where jobs run")
      if(NCCL_LIBRARY)
        target_compile_definitions(trireme_nccl INTERFACE TRIREME_NCCL_LIBRARY="${NCCL_LIBRARY}")
        set(nccl_is "loaded at run time by its name, or from ${NCCL_LIBRARY}")
      endif()
      message(STATUS "NCCL: header in ${NCCL_INCLUDE_DIR}, ${nccl_is}")
    elseif(TRIREME_NCCL STREQUAL "ON")
      trireme_need("${NCCL_FOUND}" "NCCL's header (or configure with -DTRIREME_NCCL=OFF)" "-" nccl)
    else()
      message(WARNING "NCCL's header not found: MPI sends messages between devices through host memory. "
                      "Spack: spack install nccl.")
    endif()
  endif()
elseif(TRIREME_NCCL STREQUAL "ON")
  message(FATAL_ERROR "TRIREME_NCCL=ON, but the Kokkos found in ${Kokkos_DIR} has no back end that NCCL supports: its "
                      "back ends are [${Kokkos_DEVICES}]")
endif()

# Every CUDA toolkit has cuBLASLt. On hosts only a test uses its header (tests/kernels/cublaslt_stand_in).
if(NOT TRIREME_CUBLASLT STREQUAL "OFF")
  find_package(CUDAToolkit QUIET)
  if("CUDA" IN_LIST Kokkos_DEVICES)
    if(TRIREME_CUBLASLT STREQUAL "ON" AND NOT TARGET CUDA::cublasLt)
      trireme_need(FALSE "cuBLASLt (or configure with -DTRIREME_CUBLASLT=OFF)" nvidia-cuda-toolkit cuda)
    elseif(NOT TARGET CUDA::cublasLt)
      message(WARNING "cuBLASLt not found: Kokkos Kernels computes matrix products, those of bf16 and fp16 in fp32. "
                      "It is part of the CUDA toolkit: -DCUDAToolkit_ROOT=/its/prefix.")
    endif()
  elseif(TRIREME_CUBLASLT STREQUAL "ON")
    message(FATAL_ERROR "TRIREME_CUBLASLT=ON, but the Kokkos found in ${Kokkos_DIR} has the back ends [${Kokkos_DEVICES}]: "
                        "cuBLASLt runs on CUDA devices only. Configure with -DTRIREME_CUBLASLT=AUTO.")
  endif()
endif()
set(TRIREME_HAS_CUBLASLT OFF)
if(TARGET CUDA::cublasLt AND "CUDA" IN_LIST Kokkos_DEVICES)
  set(TRIREME_HAS_CUBLASLT ON)
endif()

# cuDNN's attention needs the headers of its front end (cudnn-frontend 1.23 or newer), which Spack and Debian lack. On
# hosts a test uses it (tests/kernels/cudnn_stand_in).
set(TRIREME_HAS_CUDNN OFF)
if(NOT TRIREME_CUDNN STREQUAL "OFF")
  find_package(CUDAToolkit QUIET)
  find_path(CUDNN_INCLUDE_DIR cudnn.h HINTS ${CUDAToolkit_INCLUDE_DIRS})
  find_library(CUDNN_LIBRARY cudnn HINTS ${CUDAToolkit_LIBRARY_DIR})
  find_path(CUDNN_FRONTEND_INCLUDE_DIR cudnn_frontend.h PATH_SUFFIXES include)
  set(missing "")
  foreach(part CUDNN_INCLUDE_DIR CUDNN_LIBRARY CUDNN_FRONTEND_INCLUDE_DIR)
    if(NOT ${part})
      list(APPEND missing ${part})
    endif()
  endforeach()
  if(NOT missing)
    file(STRINGS "${CUDNN_FRONTEND_INCLUDE_DIR}/cudnn_frontend_version.h" numbers REGEX "_(MAJOR|MINOR)_VERSION [0-9]+")
    string(REGEX REPLACE "[^;]*MAJOR_VERSION ([0-9]+);[^;]*MINOR_VERSION ([0-9]+).*" "\\1.\\2" version "${numbers}")
    if(version VERSION_LESS 1.23)
      set(missing "cudnn-frontend 1.23; ${CUDNN_FRONTEND_INCLUDE_DIR} has ${version}")
      message(STATUS "cuDNN is not used: it needs ${missing}")
    endif()
  endif()
  if(NOT missing AND TARGET CUDA::nvrtc)
    add_library(trireme_cudnn INTERFACE)
    target_include_directories(trireme_cudnn SYSTEM INTERFACE "${CUDNN_INCLUDE_DIR}" "${CUDNN_FRONTEND_INCLUDE_DIR}")
    target_link_libraries(trireme_cudnn INTERFACE "${CUDNN_LIBRARY}" CUDA::nvrtc CUDA::cudart)
    set(TRIREME_HAS_CUDNN ${TRIREME_HAS_CUBLASLT})  # cuDNN shares cuBLASLt's workspace
  endif()
  if(TRIREME_CUDNN STREQUAL "ON" AND NOT TRIREME_HAS_CUDNN)
    message(FATAL_ERROR "TRIREME_CUDNN=ON needs Kokkos with CUDA (back ends here: [${Kokkos_DEVICES}]), cuBLASLt, and cuDNN "
                        "with the headers of cudnn-frontend; not found: [${missing}]. Give their folders with "
                        "-DCUDNN_FRONTEND_INCLUDE_DIR=... (headers of github.com/NVIDIA/cudnn-frontend, or of PyPI's "
                        "nvidia-cudnn-frontend), -DCUDNN_INCLUDE_DIR=... and -DCUDNN_LIBRARY=..., or configure with "
                        "-DTRIREME_CUDNN=OFF")
  endif()
endif()

if(TRIREME_MISSING)
  message(FATAL_ERROR "Trireme needs the following packages, which CMake did not find:${TRIREME_MISSING}\n"
                      "On Debian and Ubuntu, tools/setup installs all of them. CMake finds a package in another "
                      "prefix with -D<name>_ROOT=/its/prefix.")
endif()

# ---- Kokkos: one interface target for all versions -------------------------------------------------------------------
add_library(trireme_kokkos INTERFACE)
if(TARGET Kokkos::kokkos)
  target_link_libraries(trireme_kokkos INTERFACE Kokkos::kokkos)
else()  # Trilinos' TriBITS configuration of 3.4 names its libraries in a variable
  target_link_libraries(trireme_kokkos INTERFACE ${Kokkos_LIBRARIES})
endif()
if(TARGET Kokkos::kokkoskernels)
  target_link_libraries(trireme_kokkos INTERFACE Kokkos::kokkoskernels)
else()
  target_link_libraries(trireme_kokkos INTERFACE ${KokkosKernels_LIBRARIES})
endif()
if(DEFINED KokkosCore_VERSION OR Kokkos_VERSION VERSION_LESS 3.5)
  # Debian's Trilinos puts its headers in a folder that its CMake configuration does not name.
  find_path(TRIREME_TRILINOS_INCLUDE_DIR Kokkos_Core.hpp PATH_SUFFIXES trilinos REQUIRED)
  target_include_directories(trireme_kokkos SYSTEM INTERFACE "${TRIREME_TRILINOS_INCLUDE_DIR}")
endif()
if(TRIREME_BACK_END AND NOT TRIREME_BACK_END IN_LIST Kokkos_DEVICES)
  set(in_spack "+openmp")
  if(TRIREME_BACK_END STREQUAL "CUDA")
    set(in_spack "+cuda +wrapper cuda_arch=90")
  elseif(TRIREME_BACK_END STREQUAL "HIP")
    set(in_spack "+rocm amdgpu_target=gfx90a")
  elseif(TRIREME_BACK_END STREQUAL "SYCL")
    set(in_spack "+sycl")
  endif()
  message(FATAL_ERROR "The preset asks for ${TRIREME_BACK_END}, but the Kokkos found in ${Kokkos_DIR} has the back ends "
                      "[${Kokkos_DEVICES}]. Give one built with -DKokkos_ENABLE_${TRIREME_BACK_END}=ON by "
                      "-DKokkos_ROOT=... ; Spack: spack install kokkos ${in_spack}")
endif()
get_property(launcher_of_kokkos GLOBAL PROPERTY RULE_LAUNCH_COMPILE)
if(launcher_of_kokkos AND CMAKE_CXX_COMPILER_LAUNCHER)
  message(FATAL_ERROR "CMAKE_CXX_COMPILER_LAUNCHER=${CMAKE_CXX_COMPILER_LAUNCHER} hides the compiler from Kokkos' launcher, "
                      "so that no source would reach nvcc. Unset it, also in the environment; "
                      "docs/notes/building.md describes how to use ccache with nvcc")
endif()
set(TRIREME_ON_DEVICE OFF)  # kernels run on a device; the build machine may lack its driver
set(TRIREME_DEVICE_KIND host)
foreach(device CUDA HIP SYCL)
  if(device IN_LIST Kokkos_DEVICES)
    set(TRIREME_ON_DEVICE ON)
    string(TOLOWER ${device} TRIREME_DEVICE_KIND)
  endif()
endforeach()
if(dnnl_FOUND)
  set(onednn_is ${dnnl_VERSION})
else()
  set(onednn_is OFF)
endif()
# "MPICH 4.0.2" from the first line of the library's text, such as "MPICH Version: 4.0.2"; the standard if it has not run.
string(REGEX REPLACE "[\n,].*" "" TRIREME_MPI_NAME "${MPI_CXX_LIBRARY_VERSION_STRING}")
string(REGEX REPLACE "[ \t]*[Vv]ersion:?[ \t]*|[ \t]+" " " TRIREME_MPI_NAME "${TRIREME_MPI_NAME}")
if(NOT TRIREME_MPI_NAME)
  set(TRIREME_MPI_NAME "standard ${MPI_CXX_VERSION}")
endif()
string(REPLACE ";" ", " TRIREME_BACK_ENDS "${Kokkos_DEVICES}")
message(STATUS "Kokkos ${Kokkos_VERSION} (${Kokkos_DIR}), HDF5 ${HDF5_VERSION}, MPI ${MPI_CXX_VERSION}, "
               "oneDNN ${onednn_is}, cuBLASLt ${TRIREME_HAS_CUBLASLT}, cuDNN ${TRIREME_HAS_CUDNN}")

add_library(trireme_hdf5 INTERFACE)
target_include_directories(trireme_hdf5 SYSTEM INTERFACE ${HDF5_C_INCLUDE_DIRS})
target_link_libraries(trireme_hdf5 INTERFACE ${HDF5_C_LIBRARIES})
target_compile_definitions(trireme_hdf5 INTERFACE ${HDF5_C_DEFINITIONS})
if(HDF5_IS_PARALLEL)  # Trireme makes only serial calls, but the headers of parallel HDF5 include mpi.h
  target_include_directories(trireme_hdf5 SYSTEM INTERFACE ${MPI_CXX_INCLUDE_DIRS})
  target_link_libraries(trireme_hdf5 INTERFACE ${MPI_CXX_LIBRARIES})
endif()
