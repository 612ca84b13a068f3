#include <trireme/base/check.hpp>
#include <trireme/grid/nccl_library.hpp>

#include <gtest/gtest.h>

#include <cstdlib>
#include <set>
#include <string>
#include <thread>
#include <vector>

// The program is compiled against NCCL's header. The library is a stand-in with NCCL's file name,
// in a folder that the test's LD_LIBRARY_PATH names.

namespace trireme::grid {
namespace {

TEST(NcclLibrary, IsLoadedOnceForAllThreads) {
  EXPECT_EQ(loaded_nccl_library(), nullptr) << "loaded before anybody asked";
  std::vector<const NcclLibrary*> seen(8);
  std::vector<std::thread> threads;
  for (const NcclLibrary*& one : seen) threads.emplace_back([&one] { one = &nccl_library(); });
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(std::set(seen.begin(), seen.end()).size(), 1U);
  EXPECT_EQ(loaded_nccl_library(), seen[0]);
  EXPECT_EQ(seen[0]->name, "NCCL 2.28.3");
  EXPECT_EQ(seen[0]->path, TRIREME_STAND_INS "/new/libnccl.so.2");
}

TEST(NcclLibrary, FunctionsHaveDistinctAddresses) {
  const NcclLibrary& nccl = nccl_library();
  int version = 0;
  EXPECT_EQ(nccl.get_version(&version), ncclSuccess);
  EXPECT_EQ(version, 22803);
  EXPECT_STREQ(nccl.get_error_string(ncclSuccess), "a word of the stand-in");
  const auto address = [](auto function) { return reinterpret_cast<const void*>(function); };
  const std::set<const void*> all{address(nccl.get_version),
                                  address(nccl.get_error_string),
                                  address(nccl.get_last_error),
                                  address(nccl.get_unique_id),
                                  address(nccl.comm_init_rank),
                                  address(nccl.comm_destroy),
                                  address(nccl.comm_get_async_error),
                                  address(nccl.group_start),
                                  address(nccl.group_end),
                                  address(nccl.send),
                                  address(nccl.receive),
                                  address(nccl.all_gather),
                                  address(nccl.broadcast)};
  EXPECT_EQ(all.size(), 13U);
  EXPECT_FALSE(all.contains(nullptr));
}

TEST(NcclLibrary, RejectsAnOldVersionWithBothVersions) {
  try {
    load_nccl_library({TRIREME_STAND_INS "/old/libnccl.so.2"});
    FAIL() << "no error";
  } catch (const Error& e) {
    const std::string error = e.what();
    for (const char* part :
         {"is NCCL 2.4.8 and lacks ncclGetLastError, ncclSend, ncclRecv", "cannot load NCCL 2.",
          ", which this program was compiled for, on ", "add the folder of libnccl.so.2 to",
          "or set [parallel] transport = \"mpi\""})
      EXPECT_NE(error.find(part), std::string::npos) << "'" << part << "' in:\n" << error;
  }
}

}  // namespace
}  // namespace trireme::grid
