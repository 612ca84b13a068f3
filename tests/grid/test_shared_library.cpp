#include <support/runtime.hpp>
#include <support/source_folder.hpp>
#include <support/temporary_folder.hpp>
#include <trireme/base/check.hpp>
#include <trireme/grid/runtime.hpp>
#include <trireme/grid/shared_library.hpp>

#include <gtest/gtest.h>

#include <dlfcn.h>

#include <string>

namespace trireme::grid {
namespace {

using trireme::testing::runtime;
using trireme::testing::TemporaryFolder;

// tests/grid/nccl_stand_in, where the build has put them.
const std::string stand_ins = trireme::testing::relocated("TRIREME_STAND_INS", TRIREME_STAND_INS);
const std::string good = stand_ins + "/new/libnccl.so.2";
const std::string old = stand_ins + "/old/libnccl.so.2";
const std::string missing = "libtrireme-has-none.so.2";

std::string version_of(void* handle) {
  const auto get = reinterpret_cast<int (*)(int*)>(dlsym(handle, "ncclGetVersion"));
  int version = 0;
  get(&version);
  return text("stand-in ", version);
}

LibraryWanted wanted(const std::vector<std::string>& names) {
  return {"NCCL 2.28.3",
          names,
          {"ncclGetVersion", "ncclSend", "ncclRecv"},
          version_of,
          "set [parallel] transport = \"mpi\""};
}

std::string error_of(const std::vector<std::string>& names) {
  try {
    load_library(wanted(names));
  } catch (const Error& e) {
    return e.what();
  }
  return "no error";
}

void expect_part(const std::string& all, const std::string& part) {
  EXPECT_NE(all.find(part), std::string::npos) << "'" << part << "' in:\n" << all;
}

TEST(SharedLibrary, LoadsItsFunctions) {
  const LoadedLibrary library = load_library(wanted({good}));
  EXPECT_EQ(library.path, good);
  ASSERT_EQ(library.addresses.size(), 3U);
  int version = 0;
  EXPECT_EQ(reinterpret_cast<int (*)(int*)>(library.addresses[0])(&version), 0);
  EXPECT_EQ(version, 22803);
  EXPECT_NE(library.addresses[1], library.addresses[2]);
}

TEST(SharedLibrary, UsesTheFirstSuitableName) {
  EXPECT_EQ(load_library(wanted({missing, old, good})).path, good);
}

TEST(SharedLibrary, ReportsAMissingLibraryWithTheLoadersMessage) {
  const std::string error = error_of({missing, "/nowhere/libnccl.so"});
  expect_part(error, "cannot load NCCL 2.28.3 on ");
  expect_part(error, "dlopen(\"libtrireme-has-none.so.2\"): libtrireme-has-none.so.2: cannot open");
  expect_part(error, "dlopen(\"/nowhere/libnccl.so\"): /nowhere/libnccl.so: cannot open");
  expect_part(error, "LD_LIBRARY_PATH is ");
  expect_part(error, "set [parallel] transport = \"mpi\"");
}

TEST(SharedLibrary, ReportsMissingFunctionsOfAnOldLibrary) {
  const std::string error = error_of({missing, old});
  expect_part(error,
              old + " is stand-in 2408 and lacks ncclSend, ncclRecv; its version is too old");
  expect_part(error, "dlopen(\"" + missing + "\")");
}

TEST(SharedLibrary, RejectsAFileThatIsNoLibrary) {
  const TemporaryFolder folder;
  const std::string text = folder.write("libnccl.so.2", "no library");
  expect_part(error_of({text}), "dlopen(\"" + text + "\"): " + text + ": ");
}

/// As in load_nccl: ranks that can load the library do not continue if one rank cannot.
TEST(SharedLibrary, OneRankWithoutItEndsAllRanks) {
  const int without = runtime().ranks() - 1;
  const auto load = [&] { load_library(wanted({runtime().rank() == without ? missing : good})); };
  if (runtime().rank() == without)
    EXPECT_THROW(runtime().together(load), SharedError);
  else
    EXPECT_THROW(runtime().together(load), SilentError);
}

}  // namespace
}  // namespace trireme::grid
